"""Tables as the readers of Iceberg's own library read them, of the session's version or of another one."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .java_writer import JavaTable
from .test_types_of_format_3 import shown

#: A row, its id and its last update, by its key.
Lineage = dict[int, tuple[Hashable, int | None, int | None]]


def read_by_java(java: JavaTable) -> Lineage:
    """The rows of the table's head with their ids and last updates; values as Java shows them."""
    java.table.refresh()
    schema, columns = java.table.schema(), java.iceberg.MetadataColumns
    lineage = java.gateway.new_array(java.iceberg.types.Types.NestedField, 2)
    lineage[0], lineage[1] = columns.ROW_ID, columns.LAST_UPDATED_SEQUENCE_NUMBER
    wanted = java.iceberg.types.TypeUtil.join(schema, java.iceberg.Schema(lineage))
    records = java.iceberg.data.IcebergGenerics.read(java.table).project(wanted).build()
    names = [str(column.name()) for column in schema.columns()]
    found, rows, count = {}, records.iterator(), 0
    while rows.hasNext():
        # By name: where rows are deleted by position, some versions add a column.
        row, count = rows.next(), count + 1
        plain = tuple(shown(row.getField(name)) for name in names)
        ids = (row.getField(columns.ROW_ID.name()), row.getField(columns.LAST_UPDATED_SEQUENCE_NUMBER.name()))
        found[row.getField("id")] = (plain, *ids)
    records.close()
    assert len(found) == count
    return found


@contextmanager
def java_with(jar: Path) -> Iterator[Any]:
    """The gateway to a JVM of its own with Iceberg's library in that jar; it ends with the context."""
    # They come with pyspark, which is not part of every installation, and so does Hadoop's client.
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    others = Path(pyspark.__file__).parent / "jars"
    port, token, process = launch_gateway(
        jarpath=str(next(others.glob("py4j-*.jar"))),
        classpath=os.pathsep.join([str(jar), f"{others}/*"]),
        javaopts=["-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait()


def at_metadata(gateway: Any, metadata_location: str) -> JavaTable:
    """The table as that metadata file describes it, without a catalog."""
    iceberg = gateway.jvm.org.apache.iceberg
    io = iceberg.hadoop.HadoopFileIO(gateway.jvm.org.apache.hadoop.conf.Configuration())
    return JavaTable(gateway, iceberg.BaseTable(iceberg.StaticTableOperations(metadata_location, io), "db.t"))
