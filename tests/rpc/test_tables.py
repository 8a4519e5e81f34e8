"""Tables over the wire: commits that are told, manifests that end their reader, verification, groups above bounds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_cli.client import AdminClient
from amoro_cli.list_options import ListRange, gather, listed
from amoro_cli.wait import with_tasks
from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.errors import AttemptAbandoned, InvalidArgument
from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.model.paging import ALL, Window
from amoro_core.model.tables import parse_table
from amoro_core.model.verification import RowsDigest
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_optimizer.client import Client
from tests.cli.conftest import Cli
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files
from tests.rpc.conftest import register, wait_until
from tests.store.builders import fill


@pytest.fixture
def changed(coordinator: Coordinator, command: Cli) -> Cli:
    """`amoro table changed` beside the coordinator."""
    return lambda *arguments: command("table", "changed", *arguments)


def wait_until_seen(coordinator: Coordinator, catalog: SqlCatalog, name: str) -> None:
    """Fail unless the coordinator sees the head of the table db.`name` soon."""
    head = catalog.load_table(f"db.{name}").metadata.current_snapshot_id
    assert head is not None
    wait_until(lambda: coordinator.tables.find_stored(parse_table(f"cat.db.{name}")).snapshot_id == head)


def test_a_table_that_is_told_of_is_looked_at_though_its_time_has_not_come(
    coordinator: Coordinator, catalog: SqlCatalog, changed: Cli
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    known = coordinator.tables.ensure(parse_table("cat.db.t"))
    assert known.snapshot_id is None
    writer.append(table, [row(1)])
    for _ in range(3):
        said = changed("cat.db.t", "--hint", "appended", "-o", "json")
        assert (said.status, said.err) == (0, "")
        assert (said.document["schema"], said.document["table"]) == ("amoro.table/v1", "cat.db.t")
    wait_until_seen(coordinator, catalog, "t")
    assert (changed("cat.db.t").status, changed("cat.db.t").err) == (0, "")


def test_of_several_tables_those_that_exist_are_looked_at_and_the_others_are_named(
    coordinator: Coordinator, catalog: SqlCatalog, changed: Cli
) -> None:
    for name in ("first", "second"):
        writer.append(writer.make_table(catalog, f"db.{name}", SCHEMA), [row(1)])
    said = changed("cat.db.first", "cat.db.none", "cat.db.sec*", "cat.db.gone", "-o", "json")
    document = said.document
    assert (said.status, document["schema"], document["exit_status"]) == (3, "amoro.selected/v1", 3)
    assert [(one["table"], one["outcome"], one["code"]) for one in document["tables"]] == [
        ("cat.db.first", "idle", ""),
        ("cat.db.none", "not_found", "AMORO-3002"),
        ("cat.db.second", "idle", ""),
        ("cat.db.gone", "not_found", "AMORO-3002"),
    ]
    assert "2 of 4 tables did not succeed; the worst is cat.db.none: table cat.db.none does not exist" in said.err
    for name in ("first", "second"):
        wait_until_seen(coordinator, catalog, name)
    said = changed("cat.db.first", "cat.db.second")
    assert (said.status, said.err) == (0, "")
    assert {"cat.db.first", "cat.db.second"} <= {*said.out.split()}


@pytest.fixture
def two_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """To be asked for before the coordinator."""
    monkeypatch.setattr("amoro_core.services.discovery.MOST_A_MINUTE", 2)


def test_who_tells_too_much_is_told_so_and_no_table_is_lost(
    two_a_minute: None, coordinator: Coordinator, catalog: SqlCatalog, changed: Cli
) -> None:
    for number in range(4):
        writer.append(writer.make_table(catalog, f"db.t{number}", SCHEMA), [row(1)])
    said = changed("cat.db.t0", "cat.db.t1", "cat.db.t2", "-o", "json")
    assert said.status == 5
    codes = {one["table"]: one["code"] for one in said.document["tables"]}
    assert codes == {"cat.db.t0": "", "cat.db.t1": "", "cat.db.t2": "AMORO-5009"}
    assert "1 of 3 tables did not succeed" in said.err
    said = changed("cat.db.t3")
    assert (said.status, said.out) == (5, "")
    told = "has sent 2 change notifications within a minute; cat.db.t3 is refreshed on schedule [AMORO-5009]"
    assert told in said.err
    assert "Hint: Send it again in " in said.err
    for name in ("t0", "t1"):
        wait_until_seen(coordinator, catalog, name)


PATIENCE_S = 60


def test_reading_ends_when_the_caller_has_gone(
    coordinator: Coordinator, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(table, [row(1)])
    (file,) = oracle.live_files(table)
    added = tuple(write_data_files(table, [row(1)]))  # a process has replaced the only file by one with the same rows
    commit(table, lambda head: Change(added, frozenset({file.path}), summary={"amoro.process-id": "p"}))
    reading, stopped = threading.Event(), threading.Event()

    def read_until_told(work: Any, access: Any, lineage: bool, is_cancelled: Callable[[], bool]) -> RowsDigest:
        reading.set()
        pause = threading.Event()
        for _ in range(PATIENCE_S * 20):
            if is_cancelled():
                stopped.set()
                raise AttemptAbandoned("nobody waits")
            pause.wait(0.05)
        return RowsDigest()

    monkeypatch.setattr(coordinator.verifying, "digest", read_until_told)
    metadata = [("authorization", f"Bearer {coordinator.admin_token.reveal()}")]
    with grpc.insecure_channel(coordinator.address) as channel:
        verify, request = AdminServiceStub(channel).VerifyTable, pb.VerifyTableRequest(table="cat.db.t")
        call = verify.future(request, metadata=metadata, timeout=PATIENCE_S)
        assert reading.wait(PATIENCE_S)
        call.cancel()
        assert stopped.wait(PATIENCE_S)


KINDS = ("rewrite", CLUSTER)


def test_a_group_above_every_bound_waits_and_the_process_says_which_bound_and_whose(
    coordinator: Coordinator, client: Client, catalog: SqlCatalog, command: Cli
) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA, properties={"self-optimizing.target-size": "8192"})
    for first in range(4):
        writer.append(table, [row(number) for number in range(first, 2000, 4)])
    table_id = coordinator.tables.ensure(parse_table("cat.db.t")).table_id
    asked = ClusterOptions(columns=("id",))
    begun = coordinator.services.maintaining.begin(table_id, CLUSTER, trigger="request", cluster=asked)
    (task,) = coordinator.optimizing.find_process(begun.process_id).tasks

    def told() -> tuple[str, bool]:
        """What the process says, and whether the command line shows it to people."""
        words = command("process", "show", begun.process_id, "-o", "json").document["no_optimizer"]
        return words, bool(words) and words in command("process", "show", begun.process_id).out

    small = register(coordinator, client, work_kinds=KINDS, max_cluster_bytes=10)
    larger = register(coordinator, client, work_kinds=KINDS, max_cluster_bytes=task.input_bytes - 1)
    register(coordinator, client)  # it has no bound, as it puts nothing in order
    assert not client.poll(small.token, [1], 0, (), 0).tasks
    assert not client.poll(larger.token, [1], 0, (), 0).tasks
    words = (
        f"group 1 has {task.input_bytes} bytes, and the largest that any takes is {task.input_bytes - 1} bytes "
        f"(optimizer {larger.optimizer_id}): give one more disk, or lower self-optimizing.cluster.max-group-bytes"
    )
    assert told() == (words, True)
    fitting = register(coordinator, client, work_kinds=KINDS, max_cluster_bytes=task.input_bytes)
    assert told() == ("", False)
    (handed,) = client.poll(fitting.token, [1], 0, (), 0).tasks
    assert handed.attempt.task_id == task.task_id


# Lists: in pages, counted where they are kept, without the tasks of their processes


SIZE = 90  # bytes of the input of each task


def tables_of(admin: AdminClient, part: Window = ALL) -> ListRange[pb.Table]:
    return listed(admin, part, pb.ListTablesRequest())


def tasks_of(admin: AdminClient, part: Window, status: str = "") -> tuple[pb.Process, ListRange[pb.TaskInfo]]:
    first, found = gather(admin, part, pb.ListTasksRequest(process_id="01990000", status=status))
    return first.process, found


def test_a_list_of_processes_counts_tasks_and_carries_none(coordinator: Coordinator, admin: AdminClient) -> None:
    fill(coordinator._store, known=150, running=150, each=40)
    assert admin.GetStatus(pb.GetStatusRequest()).running_processes == 150
    stub = AdminServiceStub(admin._channel)
    answer = stub.ListProcesses(pb.ListProcessesRequest(status="running"), metadata=admin._metadata, timeout=60)
    assert (len(answer.processes), answer.total, answer.next) == (100, 150, "01990050-0001")
    assert answer.ByteSize() <= 100_000
    newest = answer.processes[0]
    assert (newest.process_id, newest.table, list(newest.tasks)) == ("01990149-0001", "cat.db.t000149", [])
    assert newest.task_counts == pb.TaskCounts(planned=38, acked=1, success=1)
    assert (newest.tasks_total, newest.tasks_done, newest.busy_optimizers, newest.state) == (40, 1, 1, "running")
    assert (newest.input_bytes, newest.input_bytes_done) == (40 * SIZE, SIZE)


def test_a_process_comes_without_its_tasks_and_a_client_adds_them_page_by_page(
    coordinator: Coordinator, admin: AdminClient
) -> None:
    fill(coordinator._store, known=1, running=1, each=2500)
    alone = admin.GetProcess(pb.GetProcessRequest(process_id="01990000-0001"))
    assert (alone.tasks_total, len(alone.tasks)) == (2500, 0)
    assert [task.task_id for task in with_tasks(admin, alone).tasks] == list(range(1, 2501))


def test_a_list_that_is_longer_than_a_page_comes_whole(coordinator: Coordinator, admin: AdminClient) -> None:
    fill(coordinator._store, known=1025)
    names = [f"cat.db.t{number:06}" for number in range(1025)]
    whole = tables_of(admin)
    assert ([item.table for item in whole.items], whole.total, whole.next) == (names, 1025, "")
    part = tables_of(admin, Window(1012, names[4]))
    assert ([item.table for item in part.items], part.total) == (names[5:1017], 1025)
    assert [item.table for item in tables_of(admin, Window(0, part.next)).items] == names[1017:]
    assert tables_of(admin, Window(0, "cat.db.u")).items == []
    with pytest.raises(InvalidArgument, match="'no table' is not a cursor"):
        tables_of(admin, Window(0, "no table"))


def test_tasks_are_listed_by_number_and_status(coordinator: Coordinator, admin: AdminClient) -> None:
    fill(coordinator._store, known=1, running=1, each=9)
    owner, first = tasks_of(admin, Window(4))
    assert (owner.process_id, owner.tasks_total, list(owner.tasks)) == ("01990000-0001", 9, [])
    assert ([task.task_id for task in first.items], first.total, first.next) == ([1, 2, 3, 4], 9, "4")
    waiting = tasks_of(admin, Window(0, "5"), status="planned")[1]
    assert ([task.task_id for task in waiting.items], waiting.total, waiting.next) == ([6, 7, 8, 9], 7, "")
    with pytest.raises(InvalidArgument, match="'x' is not a task number"):
        tasks_of(admin, Window(1, "x"))
