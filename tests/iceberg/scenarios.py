"""A table that another writer fills, tables behind the port, and requests to catalogs that end early."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.formats.ports import AnyTable
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.iceberg.catalog.timeouts import limit_requests, limits
from amoro_core.model.commits import PlanRecord, SnapshotAdded, StagedCommit, Trace
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.validation import validate
from amoro_core.validation.view import build_view
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, delete_where, make_table, upsert

SCHEMA = Schema(NestedField(1, "x", LongType(), required=False), NestedField(2, "region", StringType(), required=False))
TABLE = TableIdentifier("cat", ("db",), "t")


def rows(*values: int, region: str = "n") -> list[dict[str, object]]:
    return [{"x": value, "region": region} for value in values]


def sql_config(place: Path, *allowed: str, **more: str) -> CatalogConfig:
    """The catalog that `make_catalog` makes in the directory, as a coordinator knows it."""
    uri, warehouse = f"sqlite:///{place / 'catalog.db'}", (place / "warehouse").as_uri()
    properties = {"type": "sql", "uri": uri, "warehouse": warehouse, **more}
    return CatalogConfig("cat", tuple(sorted(properties.items())), allowed)


def filled(catalog: Catalog) -> Table:
    """The table with small files and deletes of both kinds."""
    table = make_table(catalog, "db.t", SCHEMA)
    append(table, rows(1, 2))
    append(table, rows(3, 4))
    upsert(table, rows(1), ["x"])
    delete_where(table, lambda row: row["x"] == 4)
    return table


def change_metadata(table: Table, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the table's metadata file, as its owner may."""
    path = Path(local_path(table.catalog.load_table(table.name()).metadata_location))
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))


def changed(table: Table, change: Callable[[dict[str, Any]], object]) -> TableMetadata:
    """The metadata of the table with a change of their JSON."""
    metadata = json.loads(table.metadata.model_dump_json())
    change(metadata)
    return TableMetadataUtil.parse_raw(json.dumps(metadata))


def rewrite_avro(path: str, change: Callable[[list[Any]], list[Any]], codec: str = "null", **header: str) -> None:
    """The Avro file with other records under its name, with other keys of its header too."""
    place = Path(local_path(path))
    with place.open("rb") as source:
        reader: Any = fastavro.reader(source)
        schema, records = reader.writer_schema, change(list(reader))
    own = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    with place.open("wb") as target:
        fastavro.writer(target, schema, records, codec=codec, metadata={**own, **header})


def staged(config: CatalogConfig, plan: PlanRecord) -> tuple[AnyTable, StagedCommit]:
    """The rewrite validated and staged through the port."""
    found = IcebergFormat().load(config, TABLE)
    head = found.head(plan.snapshot_id)
    content = validate(build_view(plan, head)).content
    assert content is not None
    return found, found.stage(head, content, {"amoro.process-id": plan.process_id})


def traced(found: AnyTable, attempt: StagedCommit) -> Trace:
    return found.trace(SnapshotAdded(attempt.snapshot_id, attempt.parent_snapshot_id, attempt.sequence_number))


def port(table: Table | TableMetadata) -> IcebergTable:
    """The table as it was loaded, or one of which there are only metadata."""
    nothing: Any = None
    loaded = table if isinstance(table, Table) else Table(("db", "t"), table, "", nothing, nothing)
    return IcebergTable(CatalogConfig("cat", (("type", "sql"),)), TableIdentifier("cat", ("db",), "t"), loaded)


@contextmanager
def limited_requests(seconds: float) -> Iterator[None]:
    """Requests to catalogs end after this time."""
    before = limits().whole_s
    limit_requests(timedelta(seconds=seconds))
    try:
        yield
    finally:
        limit_requests(timedelta(seconds=before))


#: Status, headers and body for a path and the headers of a request.
Answer = Callable[[str, Mapping[str, str]], tuple[int, dict[str, str], str]]


@contextmanager
def http_server(answer: Answer) -> Iterator[str]:
    """The address of an HTTP server on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self.path, dict(self.headers))
            with suppress(ConnectionError):  # the client may have given up
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body.encode()))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

        do_HEAD = do_GET  # noqa: N815 - http.server asks for it

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            close_catalogs()
            server.shutdown()
            thread.join()
