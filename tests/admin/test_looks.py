"""Operations that look back: events, attempts, values over time, and plans that were kept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import pytest

from amoro_core.admin import optimizing
from amoro_core.errors import InvalidArgument, NotFound, ProcessNotFound, TableNotFound
from amoro_core.model.metrics import SYSTEM_SERIES, TableFigures
from amoro_core.model.processes import ProcessStatus, uuid7
from amoro_core.model.tables import ActionRecord
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.store import actions, groups, tables, time_series
from amoro_core.store.connection import Connection
from tests.admin.rig import Rig
from tests.dashboard import states
from tests.store import builders

DAY_MS = 86_400_000


def joined(rig: Rig, times: int) -> list[str]:
    """So many optimizers that joined, each an event."""
    asked = {"group": "default", "threads": 1, "memory_bytes": 1, "labels": {}}
    register = partial(rig.services.optimizers.register, **asked, heartbeat_interval=timedelta(seconds=1))
    return [register().optimizer.optimizer_id for _ in range(times)]


def events(rig: Rig, **wanted: object) -> journal.ListEventsResponse:
    found: journal.ListEventsResponse = rig.call("ListEvents", journal.ListEventsRequest(**wanted))
    return found


def test_events_are_paged_filtered_and_followed(rig: Rig) -> None:
    names = joined(rig, 3)
    first = events(rig, kinds=["JOINED"], limit=2)
    assert [event.optimizer_id for event in first.events] == [names[2], names[1]]
    assert (first.total, first.total_is_exact, first.events[0].data["threads"]) == (3, True, "1")
    rest = events(rig, kinds=["joined"], limit=2, after=first.next)
    assert ([event.optimizer_id for event in rest.events], rest.next) == ([names[0]], "")
    more = joined(rig, 2)
    assert [event.optimizer_id for event in events(rig, newer_than=first.last_event_id).events] == more
    assert not events(rig, after="9999999999999-9999999999999").next
    with pytest.raises(InvalidArgument, match="'comitted' is not a kind of event") as refused:
        events(rig, kinds=["comitted"])
    assert refused.value.hint.startswith("Did you mean committed?")


def test_what_is_not_known_is_refused(rig: Rig) -> None:
    for method, request, error, words in (
        ("ListEvents", journal.ListEventsRequest(process_id="01997a4c"), ProcessNotFound, "01997a4c"),
        ("ListAttempts", journal.ListAttemptsRequest(process_id="01997a4c"), ProcessNotFound, "01997a4c"),
        ("GetTableDigest", journal.GetTableDigestRequest(table="nowhere.db.t"), NotFound, "nowhere"),
        ("ListEvents", journal.ListEventsRequest(since_ms=2**62), InvalidArgument, "is no time"),
        ("ListEvents", journal.ListEventsRequest(after="99999999999999-1"), InvalidArgument, "is not a place"),
    ):
        with pytest.raises(error, match=words):
            rig.call(method, request)


def test_series_say_what_they_are_and_are_those_of_a_day_unless_asked_otherwise(rig: Rig) -> None:
    joined(rig, 1)
    rig.services.sampling.sample()
    answer = rig.call("GetSeries", journal.GetSeriesRequest())
    assert ({one.name for one in answer.series}, answer.step_s) == ({*SYSTEM_SERIES}, 60)
    (threads,) = [one for one in answer.series if one.name == "threads"]
    assert (threads.label, threads.kind, threads.points[0].sum) == ("default", "level", 1)
    now_ms = round(rig.services.sampling.now().timestamp() * 1000)
    before = journal.GetSeriesRequest(names=["threads"], since_ms=now_ms - 2 * DAY_MS, until_ms=now_ms - DAY_MS)
    assert [len(one.points) for one in rig.call("GetSeries", before).series] == [0]
    assert not rig.call("GetSeries", journal.GetSeriesRequest(names=["threads"], label="nightly")).series


# Plans that were kept

REWRITTEN = pb.PlannedPartition(partition="day=1", type="minor", data_files=3, input_bytes=10)
SKIPPED = pb.PlannedPartition(partition="day=2", data_files=9)
PLAN = pb.Plan(table="c.n.t", snapshot_id=1, type="minor", tasks=2, partitions=[SKIPPED, REWRITTEN])


@pytest.fixture
def planned(rig: Rig) -> Rig:
    """A rig that knows the catalog c."""
    rig.add_catalog("c")
    return rig


def kept(rig: Rig, plan: pb.Plan, request: pb.PlanTableRequest | None = None) -> pb.SavedPlan:
    made = pb.Plan()
    made.CopyFrom(plan)
    optimizing.keep(rig.services, request or pb.PlanTableRequest(table="c.n.t"), made, ("it was else",))
    found: pb.SavedPlan = rig.call("GetSavedPlan", pb.GetSavedPlanRequest(table="c.n.t", plan_id=made.plan_id))
    return found


def changed(*partitions: pb.PlannedPartition, **fields: object) -> pb.Plan:
    made = pb.Plan()
    made.CopyFrom(PLAN)
    made.MergeFrom(pb.Plan(partitions=partitions, **fields))
    return made


def days(numbers: Sequence[int]) -> pb.Plan:
    parts = [pb.PlannedPartition(partition=f"day={one}", type="full", input_bytes=1) for one in numbers]
    return pb.Plan(table="c.n.t", snapshot_id=1, type="full", tasks=9, partitions=parts)


def test_a_plan_is_kept_with_its_request_and_what_is_rewritten_comes_first(planned: Rig) -> None:
    options = pb.ClusterOptions(columns=["a"], full=True)
    request = pb.PlanTableRequest(table="c.n.t", type="cluster", where="day > 1", cluster=options)
    found = kept(planned, PLAN, request)
    assert optimizing.request_of(found) == request
    assert [one.partition for one in found.plan.partitions] == ["day=1", "day=2"]
    assert (found.plan_id, found.more_partitions, list(found.changes)) == (found.plan.plan_id, 0, ["it was else"])
    assert not optimizing.request_of(kept(planned, PLAN)).HasField("cluster")
    with pytest.raises(InvalidArgument, match="says type, condition and clustering itself"):
        planned.call("OptimizeTable", pb.OptimizeTableRequest(table="c.n.t", plan_id=found.plan_id, type="full"))


def test_each_change_of_a_plan_is_told_and_none_of_what_is_skipped(planned: Rig) -> None:
    changes, found = optimizing.changes, kept(planned, PLAN)
    assert changes(found, PLAN) == changes(found, changed(pb.PlannedPartition(partition="day=3"), reason="other")) == ()
    more = pb.PlannedPartition(partition="day=9", type="full", data_files=1)
    assert changes(found, changed(more, snapshot_id=2, type="major", tasks=3, layout="zorder(a)")) == (
        "The table's snapshot is 2, it was 1.",
        "The type is major, it was minor.",
        "The layout is zorder(a), it was none.",
        "It has 3 tasks, it had 2.",
        "Partition day=9 is rewritten, too: full, 1 data file.",
    )
    assert changes(kept(planned, changed(more)), PLAN) == ("Partition day=9 is not rewritten any more.",)
    grown = pb.Plan(table="c.n.t", snapshot_id=1, type="minor", tasks=2)
    grown.partitions.add(partition="day=1", type="minor", data_files=4, input_bytes=10)
    assert changes(found, grown) == ("Partition day=1: minor of 4 data files, it was minor of 3.",)
    many = [pb.PlannedPartition(partition=str(number), type="full") for number in range(15)]
    assert changes(found, changed(*many))[-1] == "5 more partitions changed."


def test_of_a_large_plan_the_first_partitions_are_kept_and_a_change_beyond_them_is_told(planned: Rig) -> None:
    found = kept(planned, days(range(700)))
    assert (len(found.plan.partitions), found.more_partitions) == (500, 200)
    assert optimizing.changes(found, days(range(700))) == ()
    beyond = days(range(699))
    beyond.partitions.add(partition="day=699", type="full", input_bytes=2)
    assert optimizing.changes(found, beyond) == ("Partitions beyond the first 500 differ.",)
    assert optimizing.changes(found, days(range(1, 701))) == ("Partition day=0 is not rewritten any more.",)


def test_a_plan_of_long_reasons_fits_and_a_condition_that_is_too_long_is_refused(planned: Rig) -> None:
    chance, letters = random.Random(7), "abcdefghijklmnopqrstuvwxyz0123456789"
    plan = days(range(500))
    for one in plan.partitions:
        one.reason = "".join(chance.choices(letters, k=2000))
    found = kept(planned, plan)
    assert 100 < len(found.plan.partitions) == 500 - found.more_partitions
    where = "".join(chance.choices(letters, k=600_000))
    with pytest.raises(InvalidArgument, match="too large to be kept"):
        kept(planned, days(range(3)), pb.PlanTableRequest(table="c.n.t", where=where))


# What was done in a time


@pytest.fixture
def night(rig: Rig) -> Rig:
    """A rig with a night's work on two tables: seven processes, one of them before it, and figures of three tables."""
    now = rig.services.sampling.now()

    def fill(db: Connection) -> None:
        orders, clicks, quiet = states.fill(db, 3)
        fail = {"status": ProcessStatus.FAILED, "failure_code": "AMORO-3001", "receipt": None}
        for number, (table, hours, more) in enumerate(
            [
                (orders, 30, {}),
                (orders, 3, {}),
                (orders, 2, {"status": ProcessStatus.PARTIAL}),
                (clicks, 5, {**fail, "failure": "a.parquet is missing"}),
                (clicks, 1, {**fail, "failure": "b.parquet is missing"}),
                (orders, 4, {**fail, "failure": "c.parquet is missing"}),
                (quiet, 1, {**fail, "failure_code": "AMORO-1002", "failure": "the disk is full"}),
            ]
        ):
            end = now - timedelta(hours=hours)
            states.ended(db, table, uuid7(end), created_at=end - timedelta(minutes=number), finished_at=end, **more)
        for table, days, small, deletes in [
            (orders, 20, 2, 0),  # long before, since when nothing has changed
            (orders, 0.1, 9, 4),
            (clicks, 1, 3, 3),
            (clicks, 0.1, 3, 2),
            (quiet, 0.3, 1, 0),  # found within the time
            (quiet, 0.1, 3, 0),
        ]:
            figures = TableFigures(50, 90, small, deletes, 1, 1)
            time_series.add_figures(db, table.table_id, figures, now - timedelta(days=days))

    rig.store.write(fill)
    return rig


def test_a_report_says_what_was_done_what_failed_and_which_tables_got_worse(night: Rig) -> None:
    report: journal.Report = night.call("GetReport", journal.GetReportRequest())
    assert (report.processes, report.ended_ms - report.began_ms) == (6, DAY_MS // 2)
    assert [(one.type, one.status, one.processes, one.tables) for one in report.totals] == [
        ("major", "failed", 4, 3),
        ("major", "partial", 1, 1),
        ("major", "success", 1, 1),
    ]
    done = report.totals[2]
    assert (done.data_files_before, done.data_files_after, done.delete_files_before) == (12, 1, 3)
    assert (done.bytes_before, done.bytes_after, done.rows_after) == (1200, 1000, 50)
    missing, full = report.failures
    assert (missing.code, missing.processes, missing.tables_total) == ("AMORO-3001", 3, 2)
    assert [(one.table, one.processes, one.reason) for one in missing.tables] == [
        ("lake.web.orders", 2, "b.parquet is missing"),
        ("lake.sales.orders", 1, "c.parquet is missing"),
    ]
    (failed,) = full.tables
    assert (full.code, failed.table, failed.reason) == ("AMORO-1002", "lake.finance.orders", "the disk is full")
    small = [(one.table, one.small_files_before, one.small_files) for one in report.worse]
    assert small == [("lake.sales.orders", 2, 9), ("lake.finance.orders", 1, 3)]
    assert [(one.delete_files_before, one.delete_files) for one in report.worse] == [(0, 4), (0, 0)]
    assert (report.worse_total, report.is_worse_known) == (2, True)


def test_a_report_is_of_the_tables_and_the_time_asked_for(night: Rig) -> None:
    def ask(**wanted: object) -> journal.Report:
        report: journal.Report = night.call("GetReport", journal.GetReportRequest(**wanted))
        return report

    now_ms = round(night.services.sampling.now().timestamp() * 1000)
    web = ask(table="*.web.*")
    assert (web.processes, [one.code for one in web.failures], web.worse_total) == (2, ["AMORO-3001"], 0)
    assert ask(table="sales.orders").processes == 3
    assert ask(since_ms=now_ms - 3 * DAY_MS).processes == ask().processes + 1
    early = ask(since_ms=now_ms - 2 * DAY_MS, until_ms=now_ms - DAY_MS)
    assert (early.processes, early.totals[0].status, early.worse_total) == (1, "success", 0)
    for text in ("*.nowhere.*", "sales.nothing"):
        with pytest.raises(TableNotFound, match="no known table matches"):
            ask(table=text)
    with pytest.raises(InvalidArgument, match="the end of the time is not after its beginning"):
        ask(since_ms=now_ms + DAY_MS)


def test_actions_are_listed_of_all_tables_of_one_or_of_those_that_match_a_pattern(rig: Rig) -> None:
    hour = timedelta(hours=1)

    def act(db: Connection) -> None:
        for number, one in enumerate(states.fill(db, 3)):
            actions.save(db, ActionRecord(one.table_id, "expire-snapshots", next_at=states.now() + number * hour))

    def listed(**wanted: object) -> tuple[list[str], int]:
        answer = rig.call("ListActions", pb.ListActionsRequest(**wanted))
        return [one.table for one in answer.actions], answer.total

    rig.store.write(act)
    sales, web, finance = "lake.sales.orders", "lake.web.orders", "lake.finance.orders"
    assert listed() == ([sales, web, finance], 3)
    assert listed(limit=2) == ([sales, web], 3)
    assert listed(table="*.[sw]*.orders") == listed(table="[sw]*.*") == ([sales, web], 2)
    assert listed(table=web, known_only=True) == ([web], 1)
    with pytest.raises(TableNotFound, match="no known table matches"):
        listed(table="lake.nowhere.*")


def test_processes_and_events_are_listed_by_time_type_and_result(night: Rig) -> None:
    now_ms = round(night.services.sampling.now().timestamp() * 1000)
    hour = DAY_MS // 24

    def run(db: Connection) -> None:
        for name in ("optimizer-1", "optimizer-2"):
            groups.add_optimizer(db, builders.optimizer(name))
        states.running(db, tables.get(db, 1))

    def listed(**wanted: object) -> list[str]:
        answer = night.call("ListProcesses", pb.ListProcessesRequest(**wanted))
        assert answer.total == len(answer.processes)
        return [one.status for one in answer.processes]

    night.store.write(run)
    assert sorted(listed(since_ms=now_ms - 5 * hour // 2)) == ["failed", "failed", "partial", "running"]
    assert listed(until_ms=now_ms - DAY_MS) == ["success"]
    between = {"since_ms": now_ms - 9 * hour // 2, "until_ms": now_ms - 2 * hour}
    assert listed(type="MAJOR", status="failed", **between) == ["failed"]
    assert listed(type="full") == []
    with pytest.raises(InvalidArgument, match="the end of the time is not after its beginning"):
        listed(since_ms=2, until_ms=1)
    with pytest.raises(InvalidArgument, match="'ful' is not a type of process") as refused:
        listed(type="ful")
    assert refused.value.hint.startswith("One of: minor, major, full, auto-create-tags, ")
    joined(night, 2)
    assert [len(events(night, until_ms=at).events) for at in (now_ms, now_ms + hour)] == [0, 2]
