"""`from amoro_core import plan, optimize, verify, connect`: on a table of pyiceberg's, and as a client."""

from __future__ import annotations

import json
import logging
import random
import shlex
import subprocess
import sys
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from amoro_core import connect, errors, optimize, plan, verify
from amoro_core.api import Client, EncodedFiles, Optimizing, Plan, Verification
from amoro_core.bootstrap.coordinator_app import Coordinator, embedded_optimizer
from amoro_core.bootstrap.process import StderrHandler
from amoro_core.errors import InvalidArgument
from amoro_core.store.database import StateLock
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, json; before = set(sys.modules); import amoro_core; "
        "print(json.dumps([name for name in set(sys.modules) - before if name.split('.')[0] in "
        "('pyarrow', 'grpc', 'pyiceberg', 'google', 'typer', 'structlog')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == []


def test_a_table_is_planned_optimized_and_verified_without_a_server(
    table: Table, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, base = oracle.live_rows(table), table.refresh().metadata.current_snapshot_id

    planned = plan(table, type="full", home=home)
    assert isinstance(planned, Plan)
    assert (planned.table, planned.type, planned.tasks) == ("cat.db.t", "full", 1)
    assert [(one.partition, one.data_files, one.expected_files) for one in planned.partitions] == [("", 3, 1)]
    assert table.refresh().metadata.current_snapshot_id == base
    with pytest.raises(FrozenInstanceError):
        planned.tasks = 3
    assert "full requested: 3 fragments" in str(planned)
    assert str(planned).endswith("Nothing was changed. Run: amoro optimize cat.db.t --type full")
    assert "unpartitioned" in planned.explain()
    page = planned._repr_html_()
    assert (page.count("<table>"), "<td style='text-align:right'>3</td>" in page) == (1, True)
    assert "<tr><th>data_files</th><td>3</td></tr>" in planned.files._repr_html_()

    done = optimize(table, type="full", home=home)
    assert isinstance(done, Optimizing)
    assert done.outcome == "success"
    assert (done.receipt.rows_before, done.receipt.rows_after, done.receipt.data_files_after) == (30, 30, 1)
    assert done.receipt.base_snapshot_id == base
    assert datetime.now(UTC) - done.process.created_at < timedelta(minutes=5)
    assert [task.status for task in done.process.tasks] == ["success"]
    assert table.metadata.current_snapshot_id == done.snapshot_id  # it was refreshed
    oracle.assert_same_rows(rows, oracle.live_rows(table))

    proven = verify(table, home=home)
    assert isinstance(proven, Verification)
    assert [(one.before, one.after, one.rows_after) for one in proven.comparisons] == [(base, done.snapshot_id, 30)]

    again = optimize(table, type="full", home=home)
    assert (again.outcome, again.process, again.receipt, again.snapshot_id) == ("nothing_to_do", None, None, None)
    assert capfd.readouterr() == ("", "")


def test_a_client_does_what_the_command_line_does(table: Table, coordinator: Coordinator) -> None:
    with connect(coordinator.address, coordinator.admin_token.reveal()) as client:
        assert (client.plan("cat.db.t").type, client.plan("cat.db.t").files.data_files) == ("minor", 3)
        assert client.optimize("cat.db.t", type="full", wait=False).outcome == "planned"
        (process,) = client.processes()
        assert (process.status, process.receipt, process.tasks_done, process.finished_at) == ("running", None, 0, None)
        with pytest.raises(errors.WaitTimeout):
            client.wait(process.process_id, timeout="100ms")
        assert client.cancel(process.process_id).status == "closed"
        assert client.enable("cat.db.t").enabled
        assert not client.disable("cat.db.t").enabled
        assert [one.table for one in client.tables(catalog="cat")] == ["cat.db.t"]
        assert client.table("cat.db.t").table_uuid == str(table.metadata.table_uuid)
        assert [(one.name, one.commits) for one in client.catalogs()] == [("cat", True)]
        assert client.process(process.process_id[:13]).process_id == process.process_id


def test_a_running_coordinator_of_the_state_directory_is_asked_and_what_it_did_is_taken_back(
    table: Table, home: Path, coordinator: Coordinator
) -> None:
    rows = oracle.live_rows(table)
    with embedded_optimizer(coordinator, 1, 2**28), connect(home=home) as client:
        assert isinstance(client, Client)
        done = optimize(table, type="full", home=home)
        assert done.outcome == "success"
        (process_id,) = (one.process_id for one in client.processes(table="cat.db.t"))
        assert done.process.process_id == process_id
        (optimizer,) = client.optimizers()
        assert optimizer.labels["backend"] == "standalone"
        assert optimizer.optimizer_id in str(optimizer)
        assert optimizer.optimizer_id in optimizer._repr_html_()
        planned = client.undo(process_id[:13], dry_run=True)
        assert (planned.outcome, planned.plan["data_files_restored"]) == ("due", 3)
        assert str(done.receipt).splitlines()[-1] == f"  undo   amoro undo {process_id}"
        undone = client.undo(process_id)
        assert (undone.outcome, undone.process.type) == ("success", "undo-optimizing")
        with pytest.raises(errors.CannotUndo, match="is no longer live") as refused:
            client.undo(process_id)
        assert (refused.value.code, refused.value.exit_status) == ("AMORO-6004", 6)
    assert len(table.refresh().inspect.files()) == 3
    oracle.assert_same_rows(rows, oracle.live_rows(table))


def test_errors_are_classes_that_mirror_the_exit_statuses(
    table: Table, home: Path, coordinator: Coordinator, tmp_path: Path
) -> None:
    with connect(coordinator.address, coordinator.admin_token.reveal()) as client:
        with pytest.raises(errors.TableNotFound, match=r"cat\.db\.nope") as not_found:
            client.plan("cat.db.nope")
        assert (not_found.value.code, not_found.value.exit_status) == ("AMORO-3002", 3)
        assert not_found.value.__notes__ == ["Hint: Did you mean cat.db.t?"]
        with pytest.raises(errors.CatalogNotFound):
            client.tables(catalog="nope")
        client.disable("cat.db.t")
        with pytest.raises(errors.TableRefused, match="switched off") as off:
            client.optimize("cat.db.t")
        assert off.value.hint == "Switch it on with: amoro table enable cat.db.t"
        assert off.value.__notes__ == [f"Hint: {off.value.hint}"]
        with pytest.raises(InvalidArgument, match="'huge' is not a type"):
            client.plan("cat.db.t", type="huge")
        for wrong in ("soon", "-5s", timedelta(seconds=-1), 30):
            with pytest.raises(InvalidArgument, match="is not a duration"):
                client.optimize("cat.db.t", timeout=wrong)
        for forced in (partial(client.plan, type="major"), client.optimize):
            with pytest.raises(InvalidArgument, match="force needs the type full") as refused:
                forced("cat.db.t", force=True)
            assert refused.value.hint == "Ask for that type: --type full --force."
    with pytest.raises(InvalidArgument, match="is not a table that pyiceberg has loaded"):
        plan("cat.db.t", home=home)
    with pytest.raises(errors.UnknownToken):
        connect(coordinator.address, "amo_wrong")
    with pytest.raises(errors.CoordinatorUnavailable, match="no coordinator runs on"):
        connect(home=tmp_path / "other")


def test_a_verification_that_fails_says_what_differs(table: Table, home: Path) -> None:
    (first, *_) = oracle.live_files(table)
    added = tuple(write_data_files(table, [row(number) for number in range(9)]))
    commit(table, lambda head: Change(added, frozenset({first.path}), summary={"amoro.process-id": "x"}))
    with pytest.raises(errors.VerificationFailed) as failed:
        verify(table, home=home)
    found = failed.value.verification
    assert isinstance(found, Verification)
    assert [(one.rows_before, one.rows_after) for one in found.comparisons] == [(10, 9)]


def test_another_table_of_the_same_name_is_not_touched(table: Table, home: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = writer.make_catalog(tmp_path / "other")
    twin = writer.make_table(other, "db.t", SCHEMA)
    writer.append(twin, [row(1)])
    writer.append(twin, [row(2)])
    uri = other.properties["uri"]
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  cat:\n    type: sql\n    uri: {uri}\n")
    optimize(twin, type="full", home=home)
    head = twin.refresh().metadata.current_snapshot_id
    with pytest.raises(InvalidArgument, match="is another table there"):
        optimize(table, type="full", home=home)
    assert twin.refresh().metadata.current_snapshot_id == head
    other.close()


def test_a_catalog_that_nobody_else_can_open_is_refused_by_name(tmp_path: Path) -> None:
    catalog = load_catalog("mem", type="in-memory", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    with pytest.raises(InvalidArgument, match="catalog mem is in memory"):
        plan(catalog.create_table("db.t", SCHEMA))
    catalog.close()


def test_a_state_directory_that_others_hold_is_waited_for_and_then_told(table: Table, home: Path) -> None:
    home.mkdir()
    with StateLock.acquire(home), pytest.raises(errors.StateDirectoryLocked):
        optimize(table, home=home, timeout=timedelta(milliseconds=200))


def test_what_goes_wrong_is_raised_and_nothing_is_written_to_stderr(
    table: Table, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Commands that other tests ran in this process sent its logs to stderr.
    root = logging.getLogger()
    others = [handler for handler in root.handlers if not isinstance(handler, StderrHandler)]
    monkeypatch.setattr(root, "handlers", others)
    with table.transaction() as change:
        change.set_properties({"self-optimizing.execute.num-retries": "0"})
    (first, *_) = oracle.live_files(table)
    Path(first.path.removeprefix("file://")).unlink()
    with pytest.raises(errors.WorkFailed, match="does not exist"):
        optimize(table, type="full", home=home)
    assert capfd.readouterr() == ("", "")


def test_the_logging_of_the_program_stays_as_it_is(table: Table, home: Path) -> None:
    loggers = [logging.getLogger(name) for name in (None, "amoro", "thrift")]
    before = [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    plan(table, home=home)
    optimize(table, type="full", home=home)
    assert [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers] == before


def test_a_condition_limits_a_round_to_partitions_and_the_receipt_tells_why_files_were_encoded(
    catalog: SqlCatalog, home: Path
) -> None:
    key = "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes"
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, properties={key: "0"})
    for number in range(3):
        writer.append(table, [row(number, "a"), row(number + 3, "a"), row(number + 10, "b")])
    writer.delete_where(table, lambda item: item["id"] in (1, 2))
    copies = (
        "files are copied as they are stored, except those with deleted rows or other columns than the table's; "
        "an output has up to 1,024 row groups"
    )
    planned = plan(table, type="full", where="part = 'a'", home=home)
    assert [one.partition for one in planned.partitions] == ["part=a"]
    command = shlex.join(["amoro", "optimize", "cat.db.t", "--type", "full", "--where", "part = 'a'"])
    assert str(planned).endswith(f"Run: {command}")
    assert planned.copying == copies
    assert f"\n  copying: {copies}\n" in planned.explain()
    done = optimize(table, type="full", where="part = 'a'", home=home)
    assert (done.receipt.data_files_before, done.process.where if done.process else "") == (3, "part = 'a'")
    figures = {figure.name: figure.value for figure in done.receipt.figures}
    assert (figures["files_copied"], figures["files_encoded"]) == (1, 2)
    assert done.receipt.encoded == (EncodedFiles("rows of it are deleted", 2),)
    with pytest.raises(InvalidArgument, match="id is not a partition column"):
        optimize(table, where="id = 4", home=home)


# Clustering: by columns that are named, and by those that queries filter by


MEMORY = 512 * 1024 * 1024
#: Small files at the target, so that a few thousand rows make many.
SMALL_FILES = {"write.target-file-size-bytes": "8192", "self-optimizing.target-size": "8192"}


@pytest.fixture
def scattered(catalog: SqlCatalog) -> Table:
    """Twelve files, each of which has ids of the whole range."""
    made = writer.make_table(catalog, "db.t", SCHEMA, properties=SMALL_FILES)
    ids = list(range(3000))
    random.Random(5).shuffle(ids)
    for first in range(0, 3000, 250):
        writer.append(made, [row(number) for number in ids[first : first + 250]])
    return made


def files_of(table: Table, number: int) -> int:
    """How many files pyiceberg plans to read for one id."""
    return len(list(table.refresh().scan(row_filter=EqualTo("id", number)).plan_files()))


def test_a_table_is_clustered_and_readers_skip_files(scattered: Table, home: Path) -> None:
    before = oracle.live_rows(scattered)
    assert min(files_of(scattered, number) for number in (300, 1500, 2700)) >= 10
    planned = plan(scattered, type="cluster", columns=["id"], home=home)
    assert (planned.type, planned.tasks > 0) == ("cluster", True)
    done = optimize(scattered, type="cluster", columns=["id"], home=home)
    assert done.outcome == "success"
    assert done.receipt.rows_before == done.receipt.rows_after == 3000
    oracle.assert_same_rows(before, oracle.live_rows(scattered))
    assert max(files_of(scattered, number) for number in (300, 1500, 2700)) <= 2
    # The order is in the metadata, nobody's default, and claimed by the files.
    metadata = scattered.refresh().metadata
    assert metadata.default_sort_order_id == 0
    orders = {one.order_id for one in metadata.sort_orders if one.fields}
    assert {task.file.sort_order_id for task in scattered.scan().plan_files()} == orders
    again = optimize(scattered, type="cluster", columns=["id"], home=home)
    assert again.outcome == "nothing_to_do"


def test_a_plan_is_stored_and_started_later(scattered: Table, coordinator: Coordinator, home: Path) -> None:
    with connect(home=home) as client, embedded_optimizer(coordinator, 1, MEMORY):
        done = client.optimize("cat.db.t", type="cluster", columns=["id"], schedule_only=True)
        assert done.process is None
        (waiting,) = client.processes()
        assert waiting.status == "requested"
        started = client.start(waiting.process_id)
        assert started.status == "success"
        with pytest.raises(errors.IllegalState, match="is success"):
            client.start(waiting.process_id)
    assert files_of(scattered, 1500) <= 2


def test_auto_takes_the_columns_that_queries_filter_by(
    scattered: Table, coordinator: Coordinator, home: Path, tmp_path: Path
) -> None:
    with scattered.transaction() as change:
        change.set_properties({"self-optimizing.cluster.columns": "auto"})
    before, queries = oracle.live_rows(scattered), tmp_path / "queries.jsonl"
    queries.write_text(f"{json.dumps({'columns': ['id']})}\n" * 200)
    with connect(home=home) as client, embedded_optimizer(coordinator, 1, MEMORY):
        waiting = client.plan("cat.db.t", type="cluster")
        assert waiting.reason == "nothing to do yet: auto needs 100 scans in 7 d to choose columns, and knows 0"
        learned = client.learn("db.t", queries=queries)
        assert (learned.table, learned.scans, learned.recent_scans, learned.enough_scans) == ("cat.db.t", 200, 200, 100)
        assert [(one.column, one.scans) for one in learned.columns] == [("id", 200)]
        suggested = client.suggest("db.t")
        assert ({one.column for one in suggested.auto.columns}, suggested.auto.scans) == ({"id"}, 200)
        assert suggested.files == len(list(scattered.refresh().scan().plan_files()))
        assert "auto chose id" in client.plan("cat.db.t", type="cluster").explain()
        assert client.optimize("cat.db.t", type="cluster", timeout=timedelta(minutes=5)).outcome == "success"
        after = client.plan("cat.db.t", type="cluster")
    stored = sum(one.file.file_size_in_bytes for one in scattered.refresh().scan().plan_files())
    assert [(one.type, one.data_bytes) for one in after.partitions] == [(None, stored)]
    oracle.assert_same_rows(before, oracle.live_rows(scattered))
    assert files_of(scattered, 1500) <= 2
