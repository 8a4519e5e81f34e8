"""A table is maintained from the command line: looked at first, done, taken back, deleted for good."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyiceberg.table import Table

from tests.acceptance.processes import Installation
from tests.acceptance.tables import look, messy_table, name_of, unreferenced_files
from tests.engine.parquet_rows import local_path

LONG_AGO_S = 10 * 86400


def age(table: Table) -> None:
    """Let every file below the table be of long ago."""
    then = time.time() - LONG_AGO_S
    for path in Path(local_path(table.metadata.location)).rglob("*"):
        os.utime(path, (then, then))


def test_orphans_are_found_condemned_brought_back_and_deleted(shared: Installation) -> None:
    table = messy_table(shared.catalog)
    name, before = name_of(table), look(table)
    data = Path(local_path(table.metadata.location), "data")
    (data / "part-0-lost.parquet").write_bytes(b"x" * 1000)
    age(table)
    (data / "part-1-young.parquet").write_bytes(b"x")
    action = ("table", "maintain", name, "--action", "clean-orphan-files")

    looked = shared.ask(*action, "--dry-run")
    assert (looked["outcome"], looked["process"]) == ("due", None)
    assert str(looked["plan"]).count("part-0-lost") == 1
    assert "part-1-young" not in str(looked["plan"])
    assert shared.ask("trash", "list")["trash"] == []

    done = shared.ask(*action, "--wait")
    assert (done["outcome"], unreferenced_files(table)) == ("success", {"part-0-lost.parquet", "part-1-young.parquet"})
    (trash,) = shared.ask("trash", "list", name)["trash"]
    assert (trash["process_id"], trash["files"], trash["bytes"]) == (done["process_id"], 1, 1000)
    (file,) = shared.ask("trash", "show", done["process_id"])["files"]
    assert file["path"].endswith("part-0-lost.parquet")

    assert shared.ask("trash", "restore", done["process_id"])["files"] == 1
    assert shared.ask("trash", "list")["trash"] == []
    again = shared.ask(*action, "--wait")
    assert again["outcome"] == "success"
    refused = shared.run("trash", "empty", name, "--now")
    assert (refused.status, "--now and --confirm go together" in refused.stderr) == (2, True)
    wrong = shared.run("trash", "empty", name, "--now", "--confirm", "cat.db.other")
    assert (wrong.status, "--confirm names 'cat.db.other'" in wrong.stderr) == (2, True)
    emptied = shared.ask("trash", "empty", name, "--now", "--confirm", name, "--wait")
    assert emptied["outcome"] == "success"
    assert unreferenced_files(table) == {"part-1-young.parquet"}
    assert look(table) == before


def test_snapshots_expire_but_for_what_is_leased_and_come_back(shared: Installation) -> None:
    table = messy_table(shared.catalog, {"history.expire.max-snapshot-age-ms": "1"})
    name, before = name_of(table), look(table)
    oldest = min(table.metadata.snapshots, key=lambda one: one.sequence_number or 0).snapshot_id
    lease = shared.ask("lease", "take", name, "--snapshot", str(oldest), "--for", "1h", "--holder", "report")
    action = ("table", "maintain", name, "--action", "expire-snapshots")
    kept = shared.ask(*action, "--dry-run")
    assert (kept["outcome"], f"lease {lease['lease_id'][:8]} of report" in kept["reason"]) == ("nothing_to_do", True)
    assert [one["lease_id"] for one in shared.ask("lease", "list", name)["leases"]] == [lease["lease_id"]]
    shared.ask("lease", "release", lease["lease_id"])

    looked = shared.ask(*action, "--dry-run")
    assert looked["reason"].startswith(f"{before.snapshots - 1} of {before.snapshots} snapshots go")
    done = shared.ask(*action, "--wait")
    assert done["outcome"] == "success"
    after = look(table)
    assert (after.snapshots, after.rows, after.files) == (1, before.rows, before.files)
    (trash,) = shared.ask("trash", "list", name)["trash"]
    assert trash["files"] > 0
    listed = {one["action"]: one for one in shared.ask("table", "actions", name)["actions"]}
    assert listed["expire-snapshots"]["last_at"] is not None
    assert (listed["expire-snapshots"]["is_on"], listed["empty-trash"]["is_on"]) == (False, True)


def test_what_is_due_is_done_in_order(shared: Installation) -> None:
    table = messy_table(shared.catalog, {"self-optimizing.enabled": "true", "history.expire.max-snapshot-age-ms": "1"})
    name, before = name_of(table), look(table)
    shared.ask("optimize", name, "--type", "full", "--wait")
    done = shared.ask("table", "maintain", name)
    found = {one["action"]: one["outcome"] for one in done["actions"]}
    assert found["expire-snapshots"] == "success"
    assert list(found) == ["clean-dangling-delete-files", "rewrite-manifests", "expire-snapshots"]
    assert look(table).rows == before.rows
    assert shared.ask("table", "maintain", name)["actions"] == []
