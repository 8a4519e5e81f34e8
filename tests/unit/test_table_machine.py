"""The table machine: every status with every event, and random sequences."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoro_core.errors import IllegalState
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier, TableRuntime
from amoro_core.state.tables import (
    TRANSITIONS,
    BeginCommit,
    BeginPlan,
    Mended,
    Necessary,
    PlanEmpty,
    PlanFailed,
    PlannedFull,
    PlannedMajor,
    PlannedMinor,
    ProcessEnded,
    Refuse,
    TableEvent,
    Unnecessary,
    advance,
    planned,
)

S = OptimizingStatus
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
IDLE = TableRuntime(
    table_id=7,
    identifier=TableIdentifier("cat", ("db",), "t"),
    uuid="uuid-7",
    format_version=2,
    location="file:///w/db/t",
    group="default",
    status=S.IDLE,
    status_since=NOW,
    status_reason="before",
    failures=2,
    retry_at=LATER,
)
STAGES = {status: replace(IDLE, status=status) for status in S} | {
    S.REFUSED: replace(IDLE, status=S.REFUSED, refusal="location")
}
EVENTS: dict[type[TableEvent], TableEvent] = {
    Necessary: Necessary(OptimizingType.MAJOR, "why"),
    Unnecessary: Unnecessary("why"),
    BeginPlan: BeginPlan("why"),
    PlannedMinor: PlannedMinor("why"),
    PlannedMajor: PlannedMajor("why"),
    PlannedFull: PlannedFull("why"),
    PlanEmpty: PlanEmpty("why"),
    PlanFailed: PlanFailed("why"),
    BeginCommit: BeginCommit("why"),
    ProcessEnded: ProcessEnded("why"),
    Refuse: Refuse("encryption", "why"),
    Mended: Mended("why"),
}
EDGES = {
    (S.IDLE, Necessary): S.PENDING,
    (S.IDLE, Unnecessary): S.IDLE,
    (S.IDLE, BeginPlan): S.PLANNING,
    (S.IDLE, Refuse): S.REFUSED,
    (S.PENDING, Necessary): S.PENDING,
    (S.PENDING, Unnecessary): S.IDLE,
    (S.PENDING, BeginPlan): S.PLANNING,
    (S.PENDING, Refuse): S.REFUSED,
    (S.PLANNING, PlannedMinor): S.MINOR_OPTIMIZING,
    (S.PLANNING, PlannedMajor): S.MAJOR_OPTIMIZING,
    (S.PLANNING, PlannedFull): S.FULL_OPTIMIZING,
    (S.PLANNING, PlanEmpty): S.IDLE,
    (S.PLANNING, PlanFailed): S.IDLE,
    (S.PLANNING, Refuse): S.REFUSED,
    (S.MINOR_OPTIMIZING, BeginCommit): S.COMMITTING,
    (S.MINOR_OPTIMIZING, ProcessEnded): S.IDLE,
    (S.MAJOR_OPTIMIZING, BeginCommit): S.COMMITTING,
    (S.MAJOR_OPTIMIZING, ProcessEnded): S.IDLE,
    (S.FULL_OPTIMIZING, BeginCommit): S.COMMITTING,
    (S.FULL_OPTIMIZING, ProcessEnded): S.IDLE,
    (S.COMMITTING, ProcessEnded): S.IDLE,
    (S.REFUSED, Refuse): S.REFUSED,
    (S.REFUSED, Mended): S.IDLE,
}


def test_the_table_has_exactly_these_edges() -> None:
    assert dict(TRANSITIONS) == EDGES


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("status", S)
def test_every_status_with_every_event(status: OptimizingStatus, kind: type[TableEvent]) -> None:
    runtime = STAGES[status]
    if (status, kind) not in EDGES:
        with pytest.raises(IllegalState, match=rf"table cat\.db\.t is {status}: {kind.__name__}"):
            advance(runtime, EVENTS[kind], LATER)
        return
    following = EDGES[status, kind]
    assert advance(runtime, EVENTS[kind], LATER) == replace(
        runtime,
        status=following,
        status_since=NOW if following is status else LATER,
        status_reason="why",
        refusal="encryption" if kind is Refuse else "",
        pending_type=OptimizingType.MAJOR if kind is Necessary else None,
    )


@pytest.mark.parametrize("event", [PlanFailed("no luck"), ProcessEnded("done")], ids=["plan", "process"])
def test_what_was_found_before_a_plan_failed_or_a_process_ended_is_to_be_found_again(event: TableEvent) -> None:
    status = S.PLANNING if isinstance(event, PlanFailed) else S.COMMITTING
    before = replace(IDLE, status=status, evaluated_snapshot_id=7)
    assert advance(before, event, LATER).evaluated_snapshot_id is None


def test_refused_table_with_another_reason_stays_refused_since_it_was() -> None:
    refused = advance(IDLE, Refuse("location", "outside"), LATER)
    changed = advance(refused, Refuse("configuration", "bad value"), LATER + timedelta(hours=1))
    assert changed == replace(refused, refusal="configuration", status_reason="bad value")


@pytest.mark.parametrize(
    ("type_", "event"),
    [
        (OptimizingType.MINOR, PlannedMinor("r")),
        (OptimizingType.MAJOR, PlannedMajor("r")),
        (OptimizingType.FULL, PlannedFull("r")),
    ],
)
def test_planned_names_the_event_of_each_type(type_: OptimizingType, event: TableEvent) -> None:
    assert planned(type_, "r") == event


@given(st.lists(st.sampled_from(list(EVENTS.values())), max_size=40))
def test_no_sequence_of_events_breaks_an_invariant(events: list[TableEvent]) -> None:
    runtime = IDLE
    for minute, event in enumerate(events, 1):
        before = runtime
        try:
            runtime = advance(before, event, NOW + timedelta(minutes=minute))
        except IllegalState:
            continue
        assert (runtime.refusal != "") == (runtime.status is S.REFUSED)
        assert (runtime.status_since == before.status_since) == (runtime.status is before.status)
        if before.status is S.COMMITTING:
            assert isinstance(event, ProcessEnded)


@pytest.mark.parametrize("status", S)
def test_every_status_leads_back_to_idle(status: OptimizingStatus) -> None:
    reached, seen = {status}, {status}
    while reached:
        reached = {end for (start, _), end in TRANSITIONS.items() if start in reached} - seen
        seen |= reached
    assert S.IDLE in seen
