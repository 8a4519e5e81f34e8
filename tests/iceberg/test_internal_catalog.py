"""Catalogs of our own: updates of metadata as JSON, names, places, and commits by compare-and-set."""

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import AlreadyExists, AmoroError, CommitConflict, Conflict, InvalidArgument, TableNotFound
from amoro_core.iceberg.catalog.internal import InternalCatalog, TableChange, backup_database, create_database
from amoro_core.iceberg.metadata_updates import created, new_table, normalised, require, updated
from amoro_core.model.location_policy import Grant

Json = dict[str, Any]
V3 = {"action": "upgrade-format-version", "format-version": 3}
SCHEMA: Json = {
    "type": "struct",
    "fields": [
        {"id": 3, "name": "id", "required": True, "type": "long"},
        {"id": 4, "name": "at", "required": False, "type": "timestamptz", "doc": "when", "ours": {"a": 1}},
        {
            "id": 5, "name": "tags", "required": False,
            "type": {
                "type": "map", "value-id": 8, "key-id": 7, "key": "string", "value-required": False,
                "value": {"type": "struct", "fields": [{"id": 9, "name": "x", "required": False, "type": "int"}]},
            },
        },
    ],
    "identifier-field-ids": [3],
}  # fmt: skip
SPEC = {"fields": [{"source-id": 4, "transform": "day", "name": "at_day"}]}
ORDER = {
    "order-id": 1,
    "fields": [{"source-id": 3, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
}
PLACE = "s3://lake/db/t"


def table(version: int = 2, **properties: str) -> Json:
    return new_table(SCHEMA, SPEC, ORDER, PLACE, {"format-version": str(version), **properties}, 1000)


def snapshot(number: int, sequence: int | None = None, parent: int | None = None, **more: object) -> Json:
    made = {"snapshot-id": number, "timestamp-ms": 1000 + number, "manifest-list": f"{PLACE}/{number}.avro", **more}
    made |= {} if sequence is None else {"sequence-number": sequence}
    return {"action": "add-snapshot", "snapshot": made | ({} if parent is None else {"parent-snapshot-id": parent})}


def ref(number: int, name: str = "main", kind: str = "branch", **more: object) -> Json:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": number, **more}


def changed(metadata: Mapping[str, Any], *updates: Json, now_ms: int = 5000) -> Json:
    after = updated(metadata, updates, now_ms, f"{PLACE}/metadata/before.json")
    assert after is not None
    return after


def test_a_new_table_has_fresh_ids_and_keeps_what_is_not_known() -> None:
    made = table(3, uuid="x", owner="ann")
    fields = made["schemas"][0]["fields"]
    assert [one["id"] for one in fields] == [1, 2, 3]
    assert (fields[2]["type"]["key-id"], fields[2]["type"]["value-id"]) == (4, 5)
    assert fields[2]["type"]["value"]["fields"][0]["id"] == 6 == made["last-column-id"]
    assert fields[1]["ours"] == {"a": 1}
    assert made["schemas"][0]["identifier-field-ids"] == [1]
    assert made["partition-specs"] == [
        {"spec-id": 0, "fields": [{**SPEC["fields"][0], "source-id": 2, "field-id": 1000}]}
    ]
    assert (made["last-partition-id"], made["default-sort-order-id"]) == (1000, 1)
    assert made["sort-orders"][0]["fields"][0]["source-id"] == 1
    assert made["properties"] == {"write.parquet.compression-codec": "zstd", "owner": "ann"}
    assert (made["next-row-id"], made["current-snapshot-id"]) == (0, None)
    assert table(1)["schema"] == table(1)["schemas"][0]
    assert "last-sequence-number" not in table(1)
    assert table(2)["current-snapshot-id"] == -1


def test_updates_are_applied_as_javas_builder_does() -> None:
    made = {**table(), "ours": [1], "metadata-log": [{"timestamp-ms": 1, "metadata-file": f"{n}"} for n in range(4)]}
    made["properties"] = {"write.metadata.previous-versions-max": "3", "a": "b"}
    after = changed(made, snapshot(1, 1, key=7), ref(1), snapshot(2, 2, 1), ref(2), ref(1, "old", "tag"))
    assert after["snapshots"][0]["key"] == 7
    assert after["ours"] == [1]
    assert [one["metadata-file"] for one in after["metadata-log"]] == ["2", "3", f"{PLACE}/metadata/before.json"]
    assert after["snapshot-log"] == [{"timestamp-ms": 1002, "snapshot-id": 2}]  # the first was never seen
    assert (after["current-snapshot-id"], after["last-sequence-number"], after["last-updated-ms"]) == (2, 2, 5000)
    assert changed(after, {"action": "set-properties", "updates": {"x": "y"}}, now_ms=9)["last-updated-ms"] == 5000
    back = changed(after, ref(1), now_ms=6000)
    assert back["snapshot-log"][1:] == [{"timestamp-ms": 6000, "snapshot-id": 1}]
    assert changed(after, snapshot(3, 1))["last-sequence-number"] == 2  # one that replaces the table
    statistics = {"snapshot-id": 2, "statistics-path": "p"}
    after = changed(after, {"action": "set-statistics", "statistics": statistics})
    gone = changed(after, {"action": "remove-snapshots", "snapshot-ids": [2, 99]})
    assert (gone["current-snapshot-id"], list(gone["refs"]), gone["statistics"]) == (-1, ["old"], [])
    assert gone["snapshot-log"] == []
    # Equal ones keep their ids; -1 names what the request has added.
    wider = {
        **made["schemas"][0],
        "fields": [*made["schemas"][0]["fields"], {"id": 7, "name": "z", "required": False, "type": "date"}],
    }
    spec = {
        "spec-id": 9,
        "fields": [
            *made["partition-specs"][0]["fields"],
            {"source-id": 1, "field-id": 1001, "transform": "bucket[4]", "name": "b"},
        ],
    }
    after = changed(
        made,
        {"action": "add-schema", "schema": wider, "last-column-id": 7},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": "eA=="}},
    )
    assert (after["current-schema-id"], after["default-spec-id"], after["default-sort-order-id"]) == (1, 1, 0)
    assert (after["last-column-id"], after["last-partition-id"], after["next-row-id"]) == (7, 1001, 0)
    again = changed(
        after,
        {"action": "add-schema", "schema": made["schemas"][0]},
        {"action": "remove-properties", "removals": ["no"]},
    )
    assert again["schemas"] == after["schemas"]
    removals = (("remove-schemas", "schema-ids", [0]), ("remove-partition-specs", "spec-ids", [0]))
    going = [{"action": action, key: ids} for action, key, ids in (*removals, ("remove-encryption-key", "key-id", "k"))]
    less = changed(after, *going)
    assert [len(less[key]) for key in ("schemas", "partition-specs", "encryption-keys")] == [1, 1, 0]
    nothing = [
        {"action": "set-location", "location": PLACE},
        {"action": "remove-snapshot-ref", "ref-name": "x"},
        {"action": "set-properties", "updates": {}},
    ]
    assert updated(made, nothing, 5000, "x") is None


BAD: Sequence[tuple[str, type[AmoroError], list[Json]]] = [
    ("Unrecognized action: fly", InvalidArgument, [{"action": "fly"}]),
    ("older than last sequence number 1", CommitConflict, [snapshot(1, 1), snapshot(2, 1, 1)]),
    ("Snapshot already exists for id: 1", InvalidArgument, [snapshot(1, 1), snapshot(1, 2)]),
    ("first-row-id is behind table next-row-id: 0 < 4", CommitConflict, [
        V3, snapshot(1, 1, **{"first-row-id": 0, "added-rows": 4}),
        snapshot(2, 2, 1, **{"first-row-id": 0, "added-rows": 1}),
    ]),
    ("first-row-id is null", InvalidArgument, [V3, snapshot(1, 1)]),
    ("Cannot downgrade v2 table to v1", InvalidArgument, [{"action": "upgrade-format-version", "format-version": 1}]),
    ("unsupported format version: v4", InvalidArgument, [{"action": "upgrade-format-version", "format-version": 4}]),
    ("Cannot set main to unknown snapshot: 7", InvalidArgument, [ref(7)]),
    ("Cannot set main to a tag", InvalidArgument, [snapshot(1, 1), ref(1, kind="tag")]),
    ("Tags do not support", InvalidArgument, [snapshot(1, 1), ref(1, "t", "tag", **{"min-snapshots-to-keep": 1})]),
    ("greater than 0: 0", InvalidArgument, [snapshot(1, 1), ref(1, **{"max-ref-age-ms": 0})]),
    ("Cannot remove the current schema", InvalidArgument, [{"action": "remove-schemas", "schema-ids": [0]}]),
    ("no schema has been added", InvalidArgument, [{"action": "set-current-schema", "schema-id": -1}]),
    ("default partition spec to unknown id: 5", InvalidArgument, [{"action": "set-default-spec", "spec-id": 5}]),
    ("Cannot parse type string to primitive: 'money'", InvalidArgument, [
        {"action": "add-schema", "schema": {"fields": [{"id": 1, "name": "a", "type": "money"}]}}]),
    ("not supported until v3", InvalidArgument, [
        {"action": "add-schema", "schema": {"fields": [{"id": 1, "name": "a", "type": "variant"}]}}]),
    ("Cannot find source column for sort field", InvalidArgument, [
        {"action": "add-schema", "schema": {"fields": [{"id": 9, "name": "a", "type": "int"}]}},
        {"action": "set-current-schema", "schema-id": -1}, {"action": "add-spec", "spec": {"fields": []}},
        {"action": "set-default-spec", "spec-id": -1}]),
    ("Cannot find source column for partition field", InvalidArgument, [
        {"action": "add-spec", "spec": {"fields": [{"source-id": 77, "transform": "day", "name": "x"}]}}]),
    ("expected str, found None", InvalidArgument, [{"action": "set-location"}]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "kind", "updates"), BAD, ids=[one[0] for one in BAD])
def test_a_bad_update_is_refused_in_icebergs_words(words: str, kind: type[AmoroError], updates: list[Json]) -> None:
    made = table()
    before = json.dumps(made)
    with pytest.raises(kind) as refused:
        updated(made, updates, 5000, "x")
    assert words in refused.value.message
    assert json.dumps(made) == before


def test_requirements_fail_in_icebergs_words() -> None:
    made = normalised(changed(table(), snapshot(1, 1), ref(1), ref(1, "t", "tag")))
    met: list[Json] = [
        {"type": "assert-table-uuid", "uuid": made["table-uuid"].upper()},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
        {"type": "assert-ref-snapshot-id", "ref": "none", "snapshot-id": None},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 6},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
    ]
    require(made, met)
    told = {
        f"UUID does not match: expected {made['table-uuid']} != x": {**met[0], "uuid": "x"},
        "branch main has changed: expected id 2 != 1": {**met[1], "snapshot-id": 2},
        "branch main was created concurrently": {**met[1], "snapshot-id": None},
        "tag t was created concurrently": {**met[2], "ref": "t"},
        "branch or tag none is missing, expected 4": {**met[2], "snapshot-id": 4},
        "last assigned field id changed: expected id 7 != 6": {**met[3], "last-assigned-field-id": 7},
        "current schema changed: expected id 7 != 0": {**met[4], "current-schema-id": 7},
        "last assigned partition id changed: expected id 7 != 1000": {**met[5], "last-assigned-partition-id": 7},
        "default partition spec changed: expected id 7 != 0": {**met[6], "default-spec-id": 7},
        "default sort order changed: expected id 7 != 1": {**met[7], "default-sort-order-id": 7},
        "table already exists": {"type": "assert-create"},
    }
    for words, one in told.items():
        with pytest.raises(CommitConflict) as refused:
            require(made, [one])
        assert refused.value.message == f"Requirement failed: {words}"
    with pytest.raises(InvalidArgument, match="unknown type"):
        require(made, [{"type": "assert-weather"}])


# --- The catalog ------------------------------------------------------------------------------------------------------


class Lake:
    """The file of internal catalogs in a directory, and one of its catalogs, opened anew by each thread."""

    def __init__(self, root: Path) -> None:
        self.file, self.warehouse = root / "catalogs.db", f"file://{root}/wh"
        self.grant = Grant((self.warehouse,))
        create_database(self.file)

    def opened(self) -> InternalCatalog:
        return InternalCatalog("lake", uri=f"sqlite:///{self.file}", warehouse=self.warehouse)

    def made(self, catalog: InternalCatalog, *name: str, place: str = "") -> Json:
        location = place or f"{self.warehouse}/{'/'.join(name)}"
        metadata = new_table(SCHEMA, None, None, location, {}, 1000)
        catalog.add_table(name, metadata, self.grant)
        return metadata

    def named(self) -> list[str]:
        """The files that may be left over."""
        with sqlite3.connect(self.file) as db:
            return [row[0] for row in db.execute("SELECT location FROM written_file")]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def refusal(work: Callable[[], object], kind: type[AmoroError]) -> str:
    with pytest.raises(kind) as refused:
        work()
    return refused.value.message


def property_set(name: str, **updates: str) -> TableChange:
    return TableChange(("db", name), [], [{"action": "set-properties", "updates": updates}])


def test_names_and_places(lake: Lake) -> None:
    catalog, root = lake.opened(), lake.warehouse
    catalog.add_namespace(("db",), {"owner": "ann"})
    catalog.add_namespace(("a.b%2E", "c"), {})
    assert catalog.namespaces(()) == [("a.b%2E",), ("db",)]
    assert catalog.namespaces(("a.b%2E",)) == [("a.b%2E", "c")]
    assert catalog.change_namespace(("db",), {"x": "y"}, ["owner", "no"]) == {"owner": "ann"}
    assert catalog.namespace_properties(("db",)) == {"x": "y"}
    assert refusal(lambda: catalog.add_namespace(("db",), {}), AlreadyExists) == "Namespace already exists: db"
    assert "empty, or has control" in refusal(lambda: catalog.add_namespace(("a\0",), {}), InvalidArgument)
    lake.made(catalog, "db", "t")
    lake.made(catalog, "a.b%2E", "c", "t", place=f"{root}/dots")
    for place in ("db/t", "db/t/inner", "db"):
        why = refusal(lambda place=place: lake.made(catalog, "db", "u", place=f"{root}/{place}"), InvalidArgument)
        assert "overlaps the location of table db.t" in why
    why = refusal(lambda: lake.made(catalog, "db", "u", place=f"{root}x/u"), InvalidArgument)
    assert "outside the catalog's warehouse" in why
    lake.made(catalog, "db", "u", place=f"{root}/db/t2")
    moving = TableChange(("db", "u"), [], [{"action": "set-location", "location": f"{root}/db/t/x"}])
    assert "overlaps" in refusal(lambda: catalog.commit([moving], lake.grant), InvalidArgument)
    assert "is not empty" in refusal(lambda: catalog.remove_namespace(("db",)), Conflict)
    catalog.move_table(("db", "u"), ("db", "v"))
    assert refusal(lambda: catalog.move_table(("db", "v"), ("db", "t")), AlreadyExists) == "Table already exists: db.t"
    assert catalog.tables(("db",)) == ["t", "v"]
    # pyiceberg's own catalog reads the same rows.
    theirs = SqlCatalog("lake", uri=f"sqlite:///{lake.file}", warehouse=root)
    assert theirs.list_tables("db") == [("db", "t"), ("db", "v")]
    assert theirs.load_table("db.t").location() == f"{root}/db/t"
    location = catalog.pointer(("db", "v"))
    catalog.remove_table(("db", "v"))
    assert Path(location.removeprefix("file://")).exists()
    catalog.register(("db", "w"), location, lake.grant, overwrite=False)
    assert catalog.load_table(("db", "w")).metadata_location == location
    assert lake.named() == []
    assert backup_database(lake.file, lake.file.with_name("copy")) > 0


def test_a_commit_is_whole_or_absent_and_its_left_overs_are_named(lake: Lake) -> None:
    catalog = lake.opened()
    catalog.add_namespace(("db",), {})
    tables = {name: lake.made(catalog, "db", name) for name in "ab"}
    before = {name: catalog.pointer(("db", name)) for name in "ab"}
    wrong = TableChange(("db", "b"), [{"type": "assert-table-uuid", "uuid": "x"}], [])
    assert "UUID" in refusal(lambda: catalog.commit([property_set("a", k="v"), wrong], lake.grant), CommitConflict)
    away = TableChange(("db", "b"), [], [{"action": "set-location", "location": f"{lake.warehouse}/db/a/b"}])
    assert "overlaps" in refusal(lambda: catalog.commit([property_set("a", k="v"), away], lake.grant), InvalidArgument)
    assert "once" in refusal(
        lambda: catalog.commit([property_set("a"), property_set("a")], lake.grant), InvalidArgument
    )
    none = TableChange(("db", "none"), [], [])
    assert refusal(lambda: catalog.commit([none], lake.grant), TableNotFound) == "Table does not exist: db.none"
    assert {name: catalog.pointer(("db", name)) for name in "ab"} == before
    assert lake.named() == []
    files = [*Path(lake.warehouse.removeprefix("file://")).rglob("*.json")]
    assert len(files) == 2
    # A file of a coordinator that died before the swap is swept by a later commit; what was swept can't be swapped in.
    lost = Path(files[0]).with_name("lost.metadata.json")
    lost.write_text("{}")
    with sqlite3.connect(lake.file) as db:
        stays = f"file://{files[0].parent}"  # can't be deleted as a file
        gone = f"{stays}/gone"  # by who died before it said so
        db.executemany("INSERT INTO written_file VALUES (?, 0)", [(f"file://{lost}",), (stays,), (gone,)])
    states = catalog.commit([property_set("a", k="1"), property_set("b", k="2")], lake.grant)
    assert not lost.exists()
    assert lake.named() == [stays]
    assert [json.loads(state.content)["properties"]["k"] for state in states] == ["1", "2"]
    assert [json.loads(state.content)["table-uuid"] for state in states] == [
        tables[name]["table-uuid"] for name in "ab"
    ]
    # A request that comes again, because its answer was lost, has been done already.
    head = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
    append = TableChange(("db", "a"), [head], [snapshot(1, 1), ref(1)])
    assert catalog.commit([append], lake.grant) == catalog.commit([append], lake.grant)
    other = TableChange(("db", "a"), [head], [snapshot(2, 1), ref(2)])
    assert "created concurrently" in refusal(lambda: catalog.commit([other], lake.grant), CommitConflict)
    new = [{"type": "assert-create"}], [
        {"action": "add-schema", "schema": SCHEMA}, {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"fields": []}}, {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": f"{lake.warehouse}/db/c"}, snapshot(5, 1), ref(5),
    ]  # fmt: skip
    done = catalog.commit([TableChange(("db", "c"), *new)], lake.grant)
    assert catalog.commit([TableChange(("db", "c"), *new)], lake.grant) == done
    assert created(new[1], 9)["current-snapshot-id"] == 5


def test_a_row_points_to_a_file_that_is_on_disk_with_its_name(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        synced.append(path)
        if path.is_file():
            assert json.loads(path.read_bytes())
            with sqlite3.connect(lake.file) as db:
                assert (f"file://{path}",) not in db.execute("SELECT metadata_location FROM iceberg_tables").fetchall()

    monkeypatch.setattr(os, "fsync", note)
    catalog = lake.opened()
    catalog.add_namespace(("db",), {})
    lake.made(catalog, "db", "t")
    file = Path(catalog.pointer(("db", "t")).removeprefix("file://"))
    assert synced == [file, *file.parents]
    synced.clear()
    catalog.commit([property_set("t", k="v")], lake.grant)
    file = Path(catalog.pointer(("db", "t")).removeprefix("file://"))
    assert synced == [file, file.parent]


def test_of_writers_at_once_each_acknowledged_commit_is_there(lake: Lake) -> None:
    catalog = lake.opened()
    catalog.add_namespace(("db",), {})
    lake.made(catalog, "db", "t")
    acknowledged: list[int] = []

    def write(first: int) -> None:
        own, number = lake.opened(), first
        while number < first + 10:
            metadata = normalised(json.loads(own.read(own.pointer(("db", "t"))).content))
            head, sequence = metadata["current-snapshot-id"], metadata["last-sequence-number"] + 1
            required = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head}
            updates = [snapshot(number, sequence, head), ref(number)]
            try:
                own.commit([TableChange(("db", "t"), [required], updates)], lake.grant)
            except CommitConflict:
                continue
            acknowledged.append(number)
            number += 1
        own.close()

    writers = [threading.Thread(target=write, args=(one * 100,)) for one in range(1, 5)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    metadata = json.loads(catalog.read(catalog.pointer(("db", "t"))).content)
    assert sorted(one["snapshot-id"] for one in metadata["snapshots"]) == sorted(acknowledged)
    assert [one["sequence-number"] for one in metadata["snapshots"]] == [*range(1, 41)]
    assert lake.named() == []
    assert len([*Path(lake.warehouse.removeprefix("file://")).rglob("*.json")]) == 41
