"""A listener of Amoro that shows the schemas of Iceberg tables in a Hive metastore, for tools that look there.

In its package: [project.entry-points."amoro.event_listeners"] hive = "hive_schemas:show_schema"
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from hive_metastore.ttypes import FieldSchema, NoSuchObjectException, SerDeInfo, StorageDescriptor, Table
from pyiceberg.catalog.hive import _HiveClient

HIVE_TYPES = {"long": "bigint", "time": "string", "uuid": "string", "timestamptz": "timestamp", "fixed": "binary"}
ICEBERG = "org.apache.iceberg.mr.hive.HiveIcebergSerDe"


def hive_type(iceberg: str) -> str:
    """The type as Hive writes it: struct<1: a: optional long> becomes struct<a:bigint>."""
    plain = re.sub(r"\d+: (\w+): (?:optional|required) ", r"\1:", iceberg).replace(", ", ",")
    return re.sub(r"[a-z]+", lambda word: HIVE_TYPES.get(word[0], word[0]), re.sub(r"fixed\[\d+\]", "fixed", plain))


def show_schema(event: Mapping[str, Any]) -> None:
    """Give the table of an event its present columns. To do so twice changes nothing."""
    data = event["data"]["data"]
    columns = [FieldSchema(name, hive_type(kind)) for name, kind in json.loads(data["columns"]).items()]
    _, *namespace, name = event["subject"].split(".")
    new = Table(tableName=name, dbName=".".join(namespace), tableType="EXTERNAL_TABLE")
    new.sd = StorageDescriptor(serdeInfo=SerDeInfo(serializationLib=ICEBERG))
    with _HiveClient(os.environ["HIVE_METASTORE"]) as hive:
        try:
            table, is_new = hive.get_table(new.dbName, name), False
        except NoSuchObjectException:
            table, is_new = new, True
        table.sd.cols = columns
        iceberg = {"EXTERNAL": "TRUE", "table_type": "ICEBERG", "metadata_location": data["metadata_location"]}
        table.parameters = {**(table.parameters or {}), **iceberg}
        hive.create_table(table) if is_new else hive.alter_table_with_environment_context(new.dbName, name, table, None)


show_schema.kinds = ("schema-changed",)
