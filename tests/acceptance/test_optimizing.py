"""A coordinator and an optimizer, each a process of its own, over TCP: tables are optimized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from amoro_core.iceberg.catalog.internal import InternalCatalog
from tests.acceptance import tables
from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import Seen, assert_optimized_once, is_optimized, look, messy_table, name_of, small_table
from tests.engine import oracle, writer
from tests.engine.builders import row
from tests.engine.parquet_rows import local_path


def assert_receipt(document: dict[str, Any], before: Seen, after: Seen) -> None:
    data, deletes = before.files[oracle.DATA], sum(before.files.values()) - before.files[oracle.DATA]
    receipt = document["process"]["receipt"]
    assert receipt.pop("duration_ms") >= 0
    figures = {figure["name"]: figure["value"] for figure in receipt.pop("figures")}
    assert receipt.pop("carried") == []
    assert sum(one["files"] for one in receipt.pop("encoded")) == figures.get("files_encoded", 0)
    assert figures.pop("files_copied", 0) + figures.pop("files_encoded", 0) in (0, data)
    assert figures.pop("coarse_bytes", 0) in (0, receipt["bytes_after"])
    assert figures == {name: value for name, value in receipt.items() if name in figures}
    assert receipt == {
        "data_files_before": data, "data_files_after": 1, "delete_files_before": deletes, "delete_files_after": 0,
        "equality_delete_files_after": 0, "disputed_deletes": 0, "bytes_before": before.size_bytes,
        "bytes_after": after.size_bytes, "rows_before": after.rows.total(), "rows_after": after.rows.total(),
        "snapshot_id": after.snapshot_id, "base_snapshot_id": before.snapshot_id, "revertible": True, "words": "",
        "equations": [{"left": "rows_before", "right": "rows_after", "holds": True}],
    }  # fmt: skip


def test_a_table_is_optimized_minor_major_and_full_and_the_last_commit_is_taken_back(site: Installation) -> None:
    table = messy_table(site.catalog)
    for kind in ("minor", "major", "full"):
        before = look(table)
        outcome = site.run("optimize", name_of(table), "--type", kind, "--wait", "-o", "json")
        assert outcome.status == 0, outcome.stderr
        after = assert_optimized_once(table, before)
        document = outcome.document
        assert (document["table"], document["outcome"]) == (name_of(table), "success")
        assert (document["process"]["type"], document["process"]["status"]) == (kind, "success")
        assert document["process"]["process_id"] == document["process_id"]
        assert_receipt(document, before, after)
        tables.assert_nothing_is_left(table)
        writer.upsert(table, [row(5, value=kind), row(26, value=kind)], ["id"])

    before = look(table)
    outcome = site.run("optimize", name_of(table), "--type", "full", "--wait")
    lines = [" ".join(line.split()) for line in outcome.stdout.splitlines()]
    assert {"deletes 1 → 0", "rows 59 = 59 ✓"} <= set(lines)
    (told,) = (line.removeprefix("undo ") for line in lines if line.startswith("undo "))
    undone = site.run(*told.split()[1:], "--wait")
    assert undone.status == 0, undone.stderr
    assert look(table).files == before.files


def test_a_table_that_lacks_a_file_fails_in_sight_of_all_until_the_file_is_back(installation: Installation) -> None:
    lacking, sound = (small_table(installation.catalog, tables.EAGER) for _ in range(2))
    name = name_of(lacking)
    path = Path(local_path(next(iter(oracle.live_files(lacking))).path))
    before = look(lacking)
    path.rename(path.with_suffix(".gone"))
    installation.optimizer(address_of(installation.up()))
    assert installation.run("status").status == 0
    for table in (lacking, sound):
        installation.ask("table", "enable", name_of(table))

    def failing() -> dict[str, Any] | None:
        found = installation.ask("table", "list", "--state", "failing")["tables"]
        return found[0] if found else None

    failed = wait_until(failing, "the table fails")
    wait_until(lambda: is_optimized(sound), "the other table is optimized")
    installation.ask("table", "changed", name_of(sound))

    def waiting() -> dict[str, Any] | None:
        found = installation.ask("table", "show", name)
        return found if "after 1 failure in a row (AMORO-1002) it is tried again at" in found["status_reason"] else None

    shown = wait_until(waiting, "the table is evaluated after its failure")
    assert (shown["table"], shown["state"], shown["failure_code"]) == (name, "failing", "AMORO-1002")
    assert (shown["failures"], shown["failing_since"], shown["saved_files"]) == (1, failed["failing_since"], 2)
    assert shown["retry_at"] > shown["failing_since"]
    assert f"[AMORO-1002] task 1 failed 1 time; last: {path.as_uri()} does not exist" in shown["failure"]
    (process,) = installation.ask("process", "list", "--table", name)["processes"]
    (task,) = installation.ask("task", "list", process["process_id"])["tasks"]
    assert (process["status"], task["attempt"], task["failed_runs"]) == ("failed", 1, 1)

    status = installation.run("status", "-o", "json")
    assert status.status == 1
    (condition,) = (one for one in status.document["conditions"] if one["name"] == "table-failing")
    assert condition["labels"] == {"table": name, "action": "optimizing", "code": "AMORO-1002"}
    assert condition["since_at"][:19] == shown["failing_since"][:19]

    path.with_suffix(".gone").rename(path)
    assert installation.ask("table", "enable", name)["state"] == "due"
    wait_until(lambda: is_optimized(lacking), "the table is optimized once its file is back")
    assert_optimized_once(lacking, before)
    wait_until(lambda: installation.run("status").status == 0, "nothing is wrong any more")
    assert not installation.ask("table", "list", "--state", "failing")["tables"]
    wait_until(lambda: installation.ask("table", "show", name)["state"] == "healthy", "the table is healthy")
    shown = installation.ask("table", "show", name)
    assert (shown["failures"], shown["failure_code"], shown["failing_since"]) == (0, "", None)


def test_a_catalog_of_our_own_is_made_filled_optimized_and_emptied(site: Installation) -> None:
    warehouse = f"file://{site.home.parent}/lake"

    def run(*arguments: str, status: int = 0) -> str:
        outcome = site.run(*arguments)
        assert outcome.status == status, outcome.stderr
        return outcome.stdout if status == 0 else outcome.stderr

    run("catalog", "add", "lake", "type=internal", f"warehouse={warehouse}")
    assert run("namespace", "create", "lake.db", "--property", "owner=ann") == "Namespace lake.db is created.\n"
    assert "already exists" in run("namespace", "create", "lake.db", status=5)
    assert "lake.db" in run("namespace", "list", "lake", "-o", "name")
    columns = ("id long not null", "at timestamptz", "region string")
    for version in ("2", "3"):
        name = f"lake.db.t{version}"
        run("table", "create", name, *columns, "--partition", "region", "--property", f"format-version={version}")
        catalog = InternalCatalog("lake", uri=f"sqlite:///{site.home}/catalogs.db", warehouse=warehouse)
        table = catalog.load_table(("db", f"t{version}"))
        assert (table.format_version, str(table.spec().fields[0].transform)) == (int(version), "identity")
        if version == "3":  # which pyiceberg does not write
            catalog.close()
            continue
        for number in range(3):
            ids = pa.array([number, number + 10], pa.int64())
            values = {"id": ids, "at": pa.nulls(2, pa.timestamp("us", "UTC")), "region": ["a", "b"]}
            table.append(pa.table(values, schema=table.schema().as_arrow()))
        before = sorted(table.scan().to_arrow().to_pylist(), key=str)
        run("optimize", name, "--type", "full", "--wait")
        table = catalog.load_table(("db", f"t{version}"))
        assert table.current_snapshot().summary.operation.value == "replace"
        assert sorted(table.scan().to_arrow().to_pylist(), key=str) == before
        catalog.close()
    run("state", "backup", f"{site.home.parent}/copy.db")
    assert Path(f"{site.home.parent}/copy.db.catalogs").stat().st_size > 0
    run("table", "rename", "lake.db.t2", "lake.db.old")
    assert "no column" in run("table", "create", "lake.db.x", "id", status=2)
    assert "none of the columns" in run("table", "create", "lake.db.x", "id long", "--partition", "day(at)", status=2)
    assert "outside" in run("table", "create", "lake.db.x", "id long", "--location", "file:///etc/x", status=2)
    assert "none of our own" in run("namespace", "create", f"{site.catalog.name}.db2", status=3)
    assert "is not empty" in run("namespace", "drop", "lake.db", status=5)
    assert "would be dropped" in run("table", "drop", "lake.db.old", "--dry-run")
    for name in ("old", "t3"):
        assert f"Table lake.db.{name} is dropped. Its files stay" in run("table", "drop", f"lake.db.{name}")
    assert list(Path(site.home.parent, "lake").rglob("*.parquet"))
    assert "would be dropped" in run("namespace", "drop", "lake.db", "--dry-run")
    run("namespace", "drop", "lake.db")
    assert "No namespaces" in run("namespace", "list", "lake")


def test_what_was_optimized_is_proven_row_by_row_and_damage_is_found(site: Installation) -> None:
    table = messy_table(site.catalog)
    name = name_of(table)
    untouched = site.ask("verify", name)
    assert (untouched["sound"], untouched["comparisons"]) == (True, [])
    base = table.refresh().metadata.current_snapshot_id
    assert site.run("optimize", name, "--type", "full", "--wait").status == 0
    ours = table.refresh().metadata.current_snapshot_id
    (rewritten,) = (Path(local_path(file.path)) for file in oracle.live_files(table))
    writer.append(table, [row(1000)])

    proven = site.run("verify", name)
    assert proven.status == 0, proven.stderr
    assert "rows   59 = 59 ✓ none was lost, added or changed" in proven.stdout
    (comparison,) = site.ask("verify", name)["comparisons"]
    assert (comparison["before"], comparison["after"], comparison["rows_after"]) == (base, ours, 59)

    content = bytearray(rewritten.read_bytes())
    content[20] ^= 1
    rewritten.write_bytes(content)
    damaged = site.run("verify", name)
    assert damaged.status == 1
    assert rewritten.name in damaged.stdout
    assert damaged.said[0] == f"Error: {name} did not pass the verification [AMORO-1011]"
    unknown = site.run("verify", name, "--before", "17")
    assert (unknown.status, unknown.stdout) == (3, "")
    assert "snapshot 17 is not one of those that the table has [AMORO-3008]" in unknown.stderr
