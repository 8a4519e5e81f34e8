"""A coordinator and an optimizer, each a process of its own, over TCP."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, address_of, wait_until
from tests.acceptance.tables import (
    Seen,
    assert_nothing_is_left,
    assert_optimized_once,
    is_optimized,
    look,
    messy_table,
    name_of,
    small_table,
)
from tests.engine import oracle, writer
from tests.engine.builders import row

EAGER = {"self-optimizing.minor.trigger.file-count": "2"}


@pytest.fixture(scope="module")
def observed(shared: Installation) -> Table:
    """A table with work to do that nobody has enabled, made before the coordinator starts."""
    return small_table(shared.catalog, EAGER)


@pytest.fixture(scope="module")
def running(shared: Installation, observed: Table) -> Installation:
    shared.optimizer(address_of(shared.up()))
    return shared


def assert_receipt(document: dict[str, Any], before: Seen, after: Seen) -> None:
    data, deletes = before.files[oracle.DATA], sum(before.files.values()) - before.files[oracle.DATA]
    receipt = document["process"]["receipt"]
    assert receipt.pop("duration_ms") >= 0
    figures = {figure["name"]: figure["value"] for figure in receipt.pop("figures")}
    assert sum(one["files"] for one in receipt.pop("encoded")) == figures.get("files_encoded", 0)
    assert figures.pop("files_copied", 0) + figures.pop("files_encoded", 0) in (0, data)
    assert figures.pop("coarse_bytes", 0) in (0, receipt["bytes_after"])
    assert figures == {name: value for name, value in receipt.items() if name in figures}
    assert receipt == {
        "data_files_before": data,
        "data_files_after": 1,
        "delete_files_before": deletes,
        "delete_files_after": 0,
        "equality_delete_files_after": 0,
        "disputed_deletes": 0,
        "bytes_before": before.size_bytes,
        "bytes_after": after.size_bytes,
        "rows_before": after.rows.total(),
        "rows_after": after.rows.total(),
        "snapshot_id": after.snapshot_id,
        "base_snapshot_id": before.snapshot_id,
        "revertible": True,
        "words": "",
        "equations": [{"left": "rows_before", "right": "rows_after", "holds": True}],
    }


def test_a_table_is_optimized_minor_major_and_full(running: Installation) -> None:
    table = messy_table(running.catalog)
    for kind in ("minor", "major", "full"):
        before = look(table)
        outcome = running.run("optimize", name_of(table), "--type", kind, "--wait", "-o", "json")
        assert outcome.status == 0, outcome.stderr
        after = assert_optimized_once(table, before)
        document = outcome.document
        assert (document["table"], document["outcome"]) == (name_of(table), "success")
        assert (document["process"]["type"], document["process"]["status"]) == (kind, "success")
        assert document["process"]["process_id"] == document["process_id"]
        assert_receipt(document, before, after)
        assert_nothing_is_left(table)
        writer.upsert(table, [row(5, value=kind), row(26, value=kind)], ["id"])


def test_the_receipt_says_that_the_rows_are_equal_and_how_to_take_the_commit_back(running: Installation) -> None:
    table = messy_table(running.catalog)
    before = look(table)
    outcome = running.run("optimize", name_of(table), "--type", "full", "--wait")
    assert outcome.status == 0
    lines = [" ".join(line.split()) for line in outcome.stdout.splitlines()]
    assert "files 7 → 1" in lines
    assert "deletes 2 → 0" in lines
    assert "rows 59 = 59 ✓" in lines
    (told,) = (line.removeprefix("undo ") for line in lines if line.startswith("undo "))
    undone = running.run(*told.split()[1:], "--wait")
    assert undone.status == 0, undone.stderr
    assert look(table).files == before.files


def test_without_waiting_the_process_is_named_and_goes_on(running: Installation) -> None:
    table = small_table(running.catalog)
    before = look(table)
    planned = running.ask("optimize", name_of(table), "--type", "minor")
    assert (planned["outcome"], planned["process"]) == ("planned", None)
    wait_until(lambda: is_optimized(table), "the process commits")
    process = wait_until(lambda: running.ended(planned["process_id"]), "the process ends")
    assert (process["status"], process["tasks_done"], process["tasks_total"]) == ("success", 1, 1)
    assert_optimized_once(table, before)


def test_a_healthy_table_has_nothing_to_do(running: Installation) -> None:
    table = writer.make_table(running.catalog, "db.healthy", small_table(running.catalog).schema())
    writer.append(table, [row(1)])
    before = look(table)
    document = running.ask("optimize", "cat.db.healthy", "--wait")
    assert (document["outcome"], document["process_id"]) == ("nothing_to_do", None)
    assert look(table) == before


def test_an_enabled_table_is_optimized_by_itself_and_an_observed_one_only_on_request(
    running: Installation, observed: Table
) -> None:
    def evaluated() -> dict[str, Any] | None:
        listed = running.ask("table", "list")["tables"]
        return next((one for one in listed if one["table"] == name_of(observed) and one["evaluated_at"]), None)

    verdict = wait_until(evaluated, "the observed table is evaluated")
    assert (verdict["status"], verdict["enabled"]) == ("idle", False)
    assert verdict["status_reason"].endswith("; observed only: it was never enabled")
    assert verdict["files"]["fragment_files"] == 3
    before_observed = look(observed)

    enabled = small_table(running.catalog, EAGER)
    before = look(enabled)
    assert running.ask("table", "enable", name_of(enabled))["enabled"] is True
    wait_until(lambda: is_optimized(enabled), "the enabled table is optimized")
    assert_optimized_once(enabled, before)
    (process,) = running.ask("process", "list")["processes"][:1]
    assert (process["table"], process["trigger"]) == (name_of(enabled), "evaluation")

    assert look(observed) == before_observed
    assert running.ask("optimize", name_of(observed), "--wait")["outcome"] == "success"
    assert_optimized_once(observed, before_observed)


def test_the_optimizer_is_listed_with_its_threads(running: Installation) -> None:
    (optimizer,) = running.ask("optimizer", "list")["optimizers"]
    assert (optimizer["group"], optimizer["threads"], optimizer["running_tasks"]) == ("default", 1, 0)
