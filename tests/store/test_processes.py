"""Processes, tasks with their payloads, and commit attempts."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amoro_core.errors import (
    AlreadyExists,
    IllegalState,
    InvalidArgument,
    ProcessNotFound,
    StaleReport,
    StoreFailed,
    TableBusy,
    TaskNotFound,
)
from amoro_core.model.processes import (
    CommitOutcome,
    OptimizerThread,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    TaskId,
    TaskStatus,
)
from amoro_core.model.tables import OptimizingType
from amoro_core.state import tasks as machine
from amoro_core.store import groups, processes, queue_stats, tables, tasks
from amoro_core.store.database import Connection, Store
from tests.store.builders import (
    NOW,
    RECEIPT,
    add_stages,
    attempt,
    minutes,
    optimizer,
    process,
    query_plan,
    runtime,
    task,
)

# Processes


def _ended(made: OptimizingProcess) -> OptimizingProcess:
    return replace(made, status=ProcessStatus.CLOSED, finished_at=NOW)


def test_process_is_added_once_and_read_as_it_was_saved(store: Store, owner: OptimizingProcess) -> None:
    assert store.read(lambda db: processes.get(db, owner.process_id)) == owner
    with pytest.raises(AlreadyExists):
        store.write(lambda db: processes.add(db, owner))
    changed = replace(
        owner,
        type=OptimizingType.FULL,
        status=ProcessStatus.PARTIAL,
        trigger="request",
        finished_at=minutes(9),
        failure_code="AMORO-5001",
        failure="group 2 in conflict",
        max_retries=0,
        allow_partial_commit=True,
        commit_tries=3,
        receipt=RECEIPT,
    )
    assert store.write(lambda db: processes.save(db, changed)) == changed
    assert store.read(lambda db: processes.get(db, owner.process_id)) == changed


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda db: processes.get(db, "p-nothing"), ProcessNotFound, "p-nothing"),
        (lambda db: processes.save(db, process(runtime(), "p-nothing")), ProcessNotFound, "p-nothing"),
        (
            lambda db: processes.save_commit_outcome(db, "p-nothing", 1, CommitOutcome.DONE),
            ProcessNotFound,
            "p-nothing has no commit attempt 1",
        ),
        *(
            (partial(read, task_id=TaskId("p-nothing", 1)), TaskNotFound, "p-nothing-1")
            for read in (tasks.get, tasks.read_input, tasks.read_output)
        ),
    ],
)
def test_what_is_unknown_is_named(
    store: Store, ask: Callable[[Connection], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        store.write(ask)


def test_table_takes_the_next_process_only_when_the_one_before_has_ended(store: Store) -> None:
    table = store.write(lambda db: tables.add(db, runtime()))
    first, second = process(table, "p-first"), process(table, "p-second")
    store.write(lambda db: processes.add(db, first))
    with pytest.raises(TableBusy, match="p-first on the table is running"):
        store.write(lambda db: processes.add(db, second))
    assert store.read(lambda db: processes.find_active(db, table.table_id)) == first
    store.write(lambda db: processes.save(db, _ended(first)))
    assert store.read(lambda db: processes.find_active(db, table.table_id)) is None
    store.write(lambda db: processes.add(db, second))
    with pytest.raises(TableBusy, match="p-second"):
        store.write(lambda db: processes.save(db, first))


def test_one_table_under_two_names_takes_one_process_at_a_time(store: Store) -> None:
    twins = store.write(lambda db: [tables.add(db, runtime(name, uuid="same")) for name in ("a", "b")])
    store.write(lambda db: processes.add(db, process(twins[0], "p-first", status=ProcessStatus.COMMIT_UNKNOWN)))
    with pytest.raises(TableBusy, match="p-first on the table is commit_unknown"):
        store.write(lambda db: processes.add(db, process(twins[1], "p-second")))


def test_process_is_found_by_the_beginning_or_the_end_of_its_id_if_that_of_no_other(store: Store) -> None:
    for name in ("0199aaaa-1", "0199aaab-2", "0199aaab-23"):
        store.write(lambda db, name=name: processes.add(db, process(tables.add(db, runtime(name)), name)))

    def find(text: str) -> str:
        return store.read(lambda db: processes.find_by_part(db, text)).process_id

    assert find("0199aaaa") == "0199aaaa-1"
    assert find("0199aaab-23") == "0199aaab-23"
    assert find("0199aaab-2") == "0199aaab-2"
    assert find("aaab-23") == "0199aaab-23"
    said = "more than one process .*: 0199aaaa-1, 0199aaab-2, 0199aaab-23"
    with pytest.raises(InvalidArgument, match=said) as refused:
        find("0199aa")
    assert refused.value.hint == "Give more characters, or the last eight."
    with pytest.raises(InvalidArgument, match="too short"):
        find("0199a")
    with pytest.raises(ProcessNotFound):
        find("0199ab")
    with pytest.raises(ProcessNotFound):
        find("0199%%")


def test_processes_are_listed_newest_first_and_active_ones_oldest_first(store: Store) -> None:
    closed, unknown = ProcessStatus.CLOSED, ProcessStatus.COMMIT_UNKNOWN
    one, two = (store.write(lambda db, name=name: tables.add(db, runtime(name))) for name in ("one", "two"))
    for made in (
        _ended(process(one, "a", created_at=minutes(1))),
        process(one, "b", created_at=minutes(2)),
        process(two, "d", created_at=minutes(3), status=unknown),
        _ended(process(two, "c", created_at=minutes(3))),
    ):
        store.write(partial(processes.add, process=made))

    def names(**wanted: Any) -> str:
        found = store.read(lambda db: processes.list_processes(db, **wanted))
        return "".join(each.process_id for each in found)

    assert (names(), names(limit=2), names(table_id=one.table_id)) == ("dcba", "dc", "ba")
    assert (names(statuses=[closed]), names(statuses=[])) == ("ca", "")
    assert names(table_id=two.table_id, statuses=[closed, unknown]) == "dc"
    assert [each.process_id for each in store.read(processes.list_active)] == ["b", "d"]


# Tasks


def test_task_in_each_status_survives_a_restart(path: Path) -> None:
    with Store.open(path) as store:
        made = store.write(add_stages)
    with Store.open(path) as store:
        assert store.read(lambda db: tasks.list_for_process(db, made[0].task_id.process_id)) == made
        assert [store.read(partial(tasks.get, task_id=each.task_id)) for each in made] == made
        assert store.read(lambda db: tasks.read_input(db, made[2].task_id)) == b"input 3"


def test_output_of_a_later_attempt_replaces_the_one_before(store: Store) -> None:
    task_id = store.write(add_stages)[3].task_id
    assert store.read(lambda db: tasks.read_output(db, task_id)) is None
    store.write(lambda db: tasks.save_output(db, task_id, 1, b""))
    assert store.read(lambda db: tasks.read_output(db, task_id)) == (1, b"")
    store.write(lambda db: tasks.save_output(db, task_id, 2, b"\x00two"))
    assert store.read(lambda db: tasks.read_output(db, task_id)) == (2, b"\x00two")
    assert store.read(lambda db: tasks.read_input(db, task_id)) == b"input 4"


def test_only_columns_that_change_are_written(store: Store) -> None:
    made = store.write(add_stages)
    after = [made[0]._replace(partition="p=1"), made[4]._replace(failure="broken", stage=2)]
    asked: list[str] = []

    def change(db: Connection) -> None:
        db.raw.set_trace_callback(asked.append)
        tasks.change_many(db, [(made[0], after[0]), (made[1], made[1]), (made[4], after[1])])
        db.raw.set_trace_callback(None)

    store.write(change)
    written = dict.fromkeys(sql.partition(" WHERE")[0] for sql in asked)  # triggers tell the statement again
    assert list(written) == [
        "UPDATE task_runtime SET partition_path = 'p=1'",
        "UPDATE task_runtime SET failure = 'broken', stage = 2",
    ]
    assert store.read(lambda db: tasks.list_for_process(db, made[0].task_id.process_id)) == [
        after[0],
        *made[1:4],
        after[1],
        *made[5:],
    ]


def test_of_many_tasks_the_one_that_is_not_there_is_named_and_none_is_changed(store: Store) -> None:
    made = store.write(add_stages)
    gone = made[0]._replace(task_id=TaskId("p-nothing", 1))
    changes = [(one, one._replace(partition="p=1")) for one in (made[0], gone)]
    with pytest.raises(TaskNotFound, match="p-nothing-1"):
        store.write(lambda db: tasks.change_many(db, changes))
    with pytest.raises(TaskNotFound, match="p-nothing-1"):
        store.write(lambda db: tasks.save_output(db, gone.task_id, 1, b""))
    ids = [made[0].task_id, gone.task_id]
    assert store.read(lambda db: tasks.get_many(db, ids)) == {made[0].task_id: made[0]}
    assert store.read(lambda db: tasks.read_inputs(db, ids)) == {made[0].task_id: b"input 1"}


def test_a_process_is_quiet_once_nothing_is_held_or_planned_for_the_group(store: Store) -> None:
    def quiet(*asked: tuple[str, str]) -> list[str]:
        return store.read(lambda db: queue_stats.list_quiet(db, asked))

    def end(db: Connection, *statuses: TaskStatus) -> None:
        for one in (one for one in made if one.status in statuses):
            at = {"scheduled_at": NOW, "acked_at": NOW, "finished_at": NOW, "attempt": one.attempt + 1}
            tasks.change_many(db, [(one, one._replace(status=TaskStatus.SUCCESS, thread=None, **at))])

    made = store.write(add_stages)
    owner = made[0].task_id.process_id
    assert quiet((owner, "default"), ("p-nothing", "default")) == []
    store.write(lambda db: end(db, TaskStatus.SCHEDULED, TaskStatus.ACKED))
    assert quiet((owner, "default")) == []
    assert quiet((owner, "spark")) == [owner], "another group may have planned ones"
    store.write(lambda db: end(db, TaskStatus.PLANNED))
    assert quiet((owner, "default"), (owner, "spark")) == [owner]


def test_a_process_that_commits_group_by_group_is_never_unquiet(store: Store) -> None:
    made = store.write(add_stages)
    owner = made[0].task_id.process_id
    store.write(lambda db: processes.save(db, replace(processes.get(db, owner), max_commits=2)))
    assert store.read(lambda db: queue_stats.list_quiet(db, [(owner, "default")])) == [owner]


def test_task_added_twice_is_refused_and_none_of_its_batch_is_kept(store: Store, owner: OptimizingProcess) -> None:
    with pytest.raises(StoreFailed, match="UNIQUE"):
        store.write(lambda db: tasks.add_many(db, [(task(owner, number), b"") for number in (1, 2, 1)]))
    assert store.read(lambda db: tasks.list_for_process(db, owner.process_id)) == []


_ids = st.sampled_from(["optimizer-1", "optimizer-2"])
_numbers = st.integers(1, 3)
_events: st.SearchStrategy[machine.TaskEvent] = st.one_of(
    st.builds(machine.Schedule, st.builds(OptimizerThread, _ids, _numbers)),
    st.builds(machine.Ack, _numbers, _ids),
    st.builds(machine.Succeed, _numbers, _ids),
    st.builds(machine.Fail, _numbers, _ids, st.just("AMORO-1001"), st.just("broken")),
    st.just(machine.Retry()),
    st.builds(machine.Reset, st.just("lost"), st.booleans()),
    st.just(machine.Cancel("closed")),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(_events, max_size=25))
def test_every_task_that_the_machine_makes_is_a_possible_row(store: Store, events: list[machine.TaskEvent]) -> None:
    def begin(db: Connection) -> OptimizingTask:
        count = len(tables.list_tables(db))
        if count == 0:
            groups.add_optimizer(db, optimizer())
            groups.add_optimizer(db, optimizer("optimizer-2"))
        owner = processes.add(db, process(tables.add(db, runtime(f"t{count}")), f"process-{count:05}"))
        tasks.add_many(db, [(task(owner), b"")])
        return task(owner)

    kept = store.write(begin)
    for second, event in enumerate(events):
        try:
            after = machine.advance(kept, event, minutes(second))
        except (StaleReport, IllegalState):
            continue
        store.write(partial(tasks.change_many, changes=[(kept, after)]))
        kept = after
        assert store.read(partial(tasks.get, task_id=kept.task_id)) == kept


# Commit attempts


def test_commit_attempts_are_read_as_they_were_sent_in_order(store: Store, owner: OptimizingProcess) -> None:
    first, second = attempt(owner, 1), attempt(owner, 2, groups=(), files=(), metadata_files=())
    for one in (second, first):
        store.write(partial(processes.add_commit, attempt=one))
    assert store.read(lambda db: processes.list_commits(db, owner.process_id)) == [first, second]
    assert store.read(lambda db: processes.list_commits(db, "nobody")) == []


OPEN = (CommitOutcome.SENT, CommitOutcome.UNKNOWN)


@pytest.mark.parametrize("known", CommitOutcome)
@pytest.mark.parametrize("said", CommitOutcome)
def test_outcome_that_is_certain_stays(
    store: Store, owner: OptimizingProcess, known: CommitOutcome, said: CommitOutcome
) -> None:
    store.write(lambda db: processes.add_commit(db, attempt(owner, outcome=known)))

    def save(db: Connection) -> None:
        processes.save_commit_outcome(db, owner.process_id, 1, said)

    if said is known or (known in OPEN and said is not CommitOutcome.SENT):
        store.write(save)
        expected = said
    else:
        with pytest.raises(IllegalState, match=f"is {known}, it cannot become {said}"):
            store.write(save)
        expected = known
    assert store.read(lambda db: processes.list_commits(db, owner.process_id)) == [attempt(owner, outcome=expected)]


@pytest.mark.parametrize(
    ("ask", "index"),
    [
        (lambda db: queue_stats.next_planned(db, "p", "default", ("rewrite",), 0, 1, NOW), "task_runtime_planned"),
        (lambda db: queue_stats.count_assigned(db, "default"), "task_runtime_held_by_table"),
        (lambda db: queue_stats.list_thread_uses(db, "default", NOW), "task_runtime_held"),
        (lambda db: tasks.get_many(db, [TaskId("p", 1)]), "sqlite_autoindex_task_runtime_1"),
        (lambda db: tasks.read_inputs(db, [TaskId("p", 1)]), "sqlite_autoindex_task_payload_1"),
        (lambda db: queue_stats.input_sizes(db, [TaskId("p", 1)]), "sqlite_autoindex_task_payload_1"),
        (lambda db: queue_stats.list_quiet(db, [("p", "default")]), "task_runtime_planned"),
        (lambda db: queue_stats.list_quiet(db, [("p", "default")]), "task_runtime_held"),
        (lambda db: queue_stats.list_quiet(db, [("p", "default")]), "sqlite_autoindex_table_process_1"),
        (tasks.list_assigned, "task_runtime_held"),
        (lambda db: tasks.list_assigned(db, "optimizer-1"), "task_runtime_by_optimizer"),
        (lambda db: queue_stats.list_thread_uses(db, "default", NOW), "task_runtime_ended"),
        (processes.list_active, "table_process_active_by_time"),
        (lambda db: processes.find_active(db, 1), "table_process_active"),
    ],
)
def test_what_is_asked_often_is_answered_by_an_index(
    store: Store, ask: Callable[[Connection], object], index: str
) -> None:
    """So that polls and sweeps cost nothing that grows with the history."""
    store.write(add_stages)
    steps = query_plan(store, ask)
    assert any(f"INDEX {index} " in f"{step} " for step in steps), steps
