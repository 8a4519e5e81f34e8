"""What pyiceberg's model of metadata fails on or loses is refused by name, wherever a table is loaded."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import DateType, LongType, NestedField

from amoro_core.errors import TableRefused
from amoro_core.iceberg.catalogs import close_catalogs, load_table
from amoro_core.iceberg.features import refuse_unreadable
from amoro_core.iceberg.raw_metadata import refuse_lost, refuse_unmodelled
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from tests.engine.writer import make_catalog, make_table
from tests.faults.rest import RestServer, _json

Change = Callable[[dict[str, Any]], None]
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "d", DateType(), required=False))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()
    close_catalogs()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return make_table(catalog, "ns.t", SCHEMA)


def column(kind: Any, name: str = "c", **more: Any) -> Change:
    def add(metadata: dict[str, Any]) -> None:
        field = {"id": 50, "name": name, "required": False, "type": kind, **more}
        metadata["schemas"][0]["fields"].append(field)

    return add


def spec_field(**field: Any) -> Change:
    full = {"field-id": 1000, "name": "p", "transform": "bucket[4]", **field}
    return lambda metadata: metadata["partition-specs"][0]["fields"].append(full)


def order_field(**field: Any) -> Change:
    full = {"transform": "identity", "direction": "asc", "null-order": "nulls-first", **field}
    return lambda metadata: metadata["sort-orders"].append({"order-id": 1, "fields": [full]})


def struct(*kinds: Any, first: int = 60) -> dict[str, Any]:
    fields = [{"id": first + at, "name": f"f{at}", "required": False, "type": kind} for at, kind in enumerate(kinds)]
    return {"type": "struct", "fields": fields}


def list_of(kind: Any) -> dict[str, Any]:
    return {"type": "list", "element-id": 70, "element": kind, "element-required": False}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "key-id": 71, "key": key, "value-id": 72, "value": value, "value-required": False}


def with_snapshot(**more: Any) -> Change:
    def add(metadata: dict[str, Any]) -> None:
        made = {"snapshot-id": 5, "timestamp-ms": 1, "manifest-list": "/l", "sequence-number": 1, **more}
        metadata["snapshots"] = [{**made, "first-row-id": 0, "added-rows": 0, "summary": {"operation": "append"}}]

    return add


def as_format_3(table: Table, change: Change) -> str:
    metadata = json.loads(table.metadata.model_dump_json())
    metadata.update({"format-version": 3, "next-row-id": 0})
    change(metadata)
    return json.dumps(metadata)


def old_variant(metadata: dict[str, Any]) -> None:
    old = {"type": "struct", "schema-id": 7, "fields": [{"id": 9, "name": "v", "required": False, "type": "variant"}]}
    metadata["schemas"].append(old)


NANOS = "2026-01-01T00:00:00.000000001"
UNLOADABLE: list[tuple[Change, str, str]] = [
    (column("variant"), "type", "column c has the type variant, which is not handled"),
    (column("geometry(OGC:CRS84)"), "type", "column c has the type geometry(OGC:CRS84), which is not handled"),
    (column("geography(OGC:CRS84, vincenty)"), "type", "column c has the type geography(OGC:CRS84, vincenty)"),
    (column(struct("int", list_of("variant"))), "type", "column c.f1.element has the type variant"),
    (column(map_of("string", struct("variant"))), "type", "column c.value.f0 has the type variant"),
    (old_variant, "type", "column v of schema 7 has the type variant"),
    (spec_field(**{"source-ids": [1, 2]}), "transform", "partition field p of spec 0 has the transform bucket[4] of 2"),
    (
        spec_field(**{"source-id": 1, "source-ids": [1, 2]}),
        "transform",
        "partition field p of spec 0 has the transform",
    ),
    (order_field(**{"source-ids": [1, 2]}), "transform", "field 1 of sort order 1 has the transform identity of 2 col"),
    (lambda one: one.update({"encryption-keys": [{"key-id": "k"}]}), "encryption", "the metadata has encryption-keys"),
    (with_snapshot(**{"key-id": "k"}), "encryption", "snapshot 5 has a key-id"),
    (
        column("timestamp_ns", **{"initial-default": NANOS}),
        "default",
        f"column c has the initial-default '{NANOS}', which can't be read as timestamp_ns",
    ),
    (column("timestamptz_ns", **{"write-default": f"{NANOS}+00:00"}), "default", "column c has the write-default"),
    (column(struct("int"), **{"initial-default": {}}), "default", "initial-default {}, and defaults of a struct are"),
    (column(list_of("int"), **{"initial-default": [1]}), "default", "initial-default [1], and defaults of a list are"),
    (column("date", **{"initial-default": "+10000-01-01"}), "default", "'+10000-01-01', which can't be read as date"),
]


@pytest.mark.parametrize(("change", "reason", "said"), UNLOADABLE)
def test_what_the_model_lacks_is_refused_when_a_table_is_loaded(
    table: Table, tmp_path: Path, change: Change, reason: str, said: str
) -> None:
    Path(table.metadata_location.removeprefix("file://")).write_text(as_format_3(table, change))
    uri, warehouse = f"sqlite:///{tmp_path / 'catalog.db'}", (tmp_path / "warehouse").as_uri()
    config = CatalogConfig("cat", (("type", "sql"), ("uri", uri), ("warehouse", warehouse)))
    with pytest.raises(TableRefused) as refused:
        load_table(config, TableIdentifier("cat", ("ns",), "t"))
    assert (refused.value.reason, said in refused.value.message) == (reason, True), refused.value.message


class AnyMetadata(RestServer):
    """Answers a load with metadata of any content."""

    metadata = ""

    def reply(self, method: str, target: str, body: bytes) -> Any:
        if method != "GET" or "/tables/" not in target:
            return super().reply(method, target, body)
        answer = {"metadata-location": "/t/metadata/v1.json", "metadata": json.loads(self.metadata), "config": {}}
        return self.proxy.handle(lambda: _json(answer), None, loads_table=True)


def test_a_rest_catalog_s_answer_is_refused_for_the_same(catalog: SqlCatalog, table: Table, tmp_path: Path) -> None:
    with AnyMetadata(catalog) as server:
        config = CatalogConfig("rest", (("type", "rest"), ("uri", server.uri)))
        for change, reason, said in UNLOADABLE:
            server.metadata = as_format_3(table, change)
            with pytest.raises(TableRefused) as refused:
                load_table(config, TableIdentifier("rest", ("ns",), "t"))
            assert (refused.value.reason, said in refused.value.message) == (reason, True), refused.value.message
        close_catalogs()


def test_nothing_is_refused_that_the_model_keeps(table: Table) -> None:
    for change in (column("string", "variant"), spec_field(**{"source-ids": [1]}), with_snapshot()):
        text = as_format_3(table, change)
        refuse_lost(text)
        refuse_unmodelled(text)
        assert TableMetadataUtil.parse_raw(text)


@pytest.mark.parametrize("text", ["", "[]", '{"format-version": 3, "source-ids": 1}', '{"encryption-keys": 1}'])
def test_malformed_metadata_is_left_to_whoever_makes_the_model(text: str) -> None:
    refuse_lost(text)
    refuse_unmodelled(text)


def loaded(table: Table, change: Change) -> TableMetadata:
    return TableMetadataUtil.parse_raw(as_format_3(table, change))


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns", "unknown", struct("int", "unknown")])
def test_types_of_format_3_are_handled(table: Table, kind: Any) -> None:
    refuse_unreadable(loaded(table, column(kind)))


def only_unknown(metadata: dict[str, Any]) -> None:
    metadata["schemas"][0]["fields"] = [{"id": 1, "name": "id", "required": False, "type": "unknown"}]


def promoted(metadata: dict[str, Any]) -> None:
    """The column `d`, by whose values the table is partitioned, was a date and is a timestamp."""
    spec_field(**{"source-id": 2, "transform": "identity"})(metadata)
    newer = json.loads(json.dumps(metadata["schemas"][0])) | {"schema-id": 1}
    newer["fields"][1]["type"] = "timestamp"
    metadata["schemas"].append(newer)
    metadata["current-schema-id"] = 1


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        (column("geometry"), "type", "column c has the type geometry, which is not handled"),
        (column("geography"), "type", "column c has the type geography, which is not handled"),
        (column(struct("unknown")), "type", "column c is a struct of nothing but unknown values, which Parquet"),
        (column(struct(struct("unknown", first=90))), "type", "column c is a struct of nothing but unknown values"),
        (column(list_of("unknown")), "type", "column c is a list of nothing but unknown values"),
        (column(map_of("string", "unknown")), "type", "column c is a map of nothing but unknown values"),
        (only_unknown, "type", "the table has no column that Parquet can hold"),
        (column("int", **{"initial-default": "5"}), "default", "column c has the initial-default '5', which can't be"),
        (column("int", **{"initial-default": 2**31}), "default", "column c has the initial-default 2147483648"),
        (column("decimal(9,2)", **{"initial-default": "1.5"}), "default", "which can't be read as decimal(9, 2)"),
        (promoted, "transform", "partition field p of spec 0 is the value of a column that was promoted from date to"),
    ],
)
def test_what_format_3_has_and_we_have_not_is_refused_by_name(
    table: Table, change: Change, reason: str, said: str
) -> None:
    with pytest.raises(TableRefused) as refused:
        refuse_unreadable(loaded(table, change))
    assert (refused.value.reason, said in refused.value.message) == (reason, True), refused.value.message


def test_an_initial_default_in_format_2_is_refused(table: Table) -> None:
    metadata = json.loads(table.metadata.model_dump_json())
    column("int", **{"initial-default": 5})(metadata)
    with pytest.raises(TableRefused, match="column c has the initial-default 5, which format 2 does not have"):
        refuse_unreadable(TableMetadataUtil.parse_raw(json.dumps(metadata)))
