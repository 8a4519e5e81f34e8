"""Lists over the wire: in pages, counted where they are kept, without the tasks of their processes."""

import pytest

from amoro_cli.client import AdminClient
from amoro_cli.list_options import ListRange, gather, listed
from amoro_cli.wait import with_tasks
from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.errors import InvalidArgument
from amoro_core.model.paging import ALL, Window
from amoro_core.model.tables import FileSummary
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.store import tables
from tests.store import builders
from tests.store.builders import fill

SIZE = 90  # bytes of the input of each task


def processes(admin: AdminClient, part: Window = ALL) -> ListRange[pb.Process]:
    return listed(admin, part, pb.ListProcessesRequest())


def tables_of(admin: AdminClient, part: Window = ALL, **fields: str) -> ListRange[pb.Table]:
    return listed(admin, part, pb.ListTablesRequest(**fields))


def tasks_of(admin: AdminClient, part: Window, status: str = "") -> tuple[pb.Process, ListRange[pb.TaskInfo]]:
    request = pb.ListTasksRequest(process_id="01990000", status=status)
    first, found = gather(admin, part, request)
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


def test_tables_are_sorted_and_filtered_where_they_are_kept(coordinator: Coordinator, admin: AdminClient) -> None:
    for number, (small, enabled) in enumerate([(3, True), (1, False), (2, True)]):
        summary = FileSummary(fragment_files=small, health_score=90 + number)
        one = builders.runtime(f"Orders_{number}", summary=summary, enabled=enabled, next_due_at=builders.NOW)
        coordinator._store.write(lambda db, one=one: tables.add(db, one))

    def asked(**fields: object) -> list[str]:
        answer = stub.ListTables(pb.ListTablesRequest(**fields), metadata=admin._metadata, timeout=60)
        assert answer.total == len(answer.tables)
        assert answer.total_is_exact
        assert {table.next_due_ms for table in answer.tables} <= {1767323045678}
        return [table.table.removeprefix("cat.db.Orders_") for table in answer.tables]

    stub = AdminServiceStub(admin._channel)
    assert asked(sort="small-files") == ["1", "2", "0"]
    assert asked(sort="HEALTH", order="desc") == ["2", "1", "0"]
    assert asked(enabled=True) == ["0", "2"]
    assert asked(enabled=False) == ["1"]
    assert asked(text="ORDERS_2") == ["2"]
    assert asked(namespace="db", health_below=92) == ["0", "1"]
    assert asked(namespace="other") == asked(refusal="format") == []


def test_tasks_are_listed_by_number_and_status(coordinator: Coordinator, admin: AdminClient) -> None:
    fill(coordinator._store, known=1, running=1, each=9)
    owner, first = tasks_of(admin, Window(4))
    assert (owner.process_id, owner.tasks_total, list(owner.tasks)) == ("01990000-0001", 9, [])
    assert ([task.task_id for task in first.items], first.total, first.next) == ([1, 2, 3, 4], 9, "4")
    waiting = tasks_of(admin, Window(0, "5"), status="planned")[1]
    assert ([task.task_id for task in waiting.items], waiting.total, waiting.next) == ([6, 7, 8, 9], 7, "")
    with pytest.raises(InvalidArgument, match="'x' is not a task number"):
        tasks_of(admin, Window(1, "x"))
