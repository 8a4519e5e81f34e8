"""The operations that look back, over real services: what they refuse by name, and what they answer."""

from datetime import timedelta

import pytest

from amoro_core.admin import journal
from amoro_core.admin.services import Call
from amoro_core.errors import InvalidArgument, NotFound, ProcessNotFound
from amoro_core.model.processes import ResourceGroup
from amoro_core.model.series import SYSTEM_SERIES
from amoro_core.protocol import journal_pb2 as pb
from amoro_core.wiring import Services

CALL = Call("a test")
DAY_MS = 86_400_000


def joined(services: Services, times: int) -> list[str]:
    """So many optimizers that joined, each an event."""
    return [
        services.optimizers.register(
            group="default", threads=1, memory_bytes=1, labels={}, heartbeat_interval=timedelta(seconds=1)
        ).optimizer.optimizer_id
        for _ in range(times)
    ]


@pytest.fixture(autouse=True)
def group(services: Services) -> None:
    if not any(view.group.name == "default" for view in services.groups.list_groups()):
        services.groups.create(ResourceGroup("default"))


def test_events_are_paged_filtered_and_followed(services: Services) -> None:
    names = joined(services, 3)
    first = journal.list_events(services, pb.ListEventsRequest(kinds=["JOINED"], limit=2), CALL)
    assert [event.optimizer_id for event in first.events] == [names[2], names[1]]
    assert (first.total, first.total_is_exact, first.events[0].data["threads"]) == (3, True, "1")
    rest = journal.list_events(services, pb.ListEventsRequest(kinds=["joined"], limit=2, after=first.next), CALL)
    assert ([event.optimizer_id for event in rest.events], rest.next) == ([names[0]], "")
    more = joined(services, 2)
    newer = journal.list_events(services, pb.ListEventsRequest(newer_than=first.last_event_id), CALL)
    assert [event.optimizer_id for event in newer.events] == more


def test_a_kind_that_there_is_not_is_refused_with_the_nearest(services: Services) -> None:
    with pytest.raises(InvalidArgument, match="'comitted' is not a kind of event") as refused:
        journal.list_events(services, pb.ListEventsRequest(kinds=["comitted"]), CALL)
    assert refused.value.hint.startswith("Did you mean committed?")


def test_what_is_not_known_is_refused(services: Services) -> None:
    with pytest.raises(ProcessNotFound):
        journal.list_events(services, pb.ListEventsRequest(process_id="01997a4c"), CALL)
    with pytest.raises(NotFound):
        journal.list_events(services, pb.ListEventsRequest(table="nowhere.db.t"), CALL)
    with pytest.raises(ProcessNotFound):
        journal.list_attempts(services, pb.ListAttemptsRequest(process_id="01997a4c"), CALL)
    with pytest.raises(NotFound):
        journal.get_table_digest(services, pb.GetTableDigestRequest(table="nowhere.db.t"), CALL)
    for moment in (2**62, -1):
        with pytest.raises(InvalidArgument, match="is no time"):
            journal.list_events(services, pb.ListEventsRequest(since_ms=moment), CALL)
    for after in ("99999999999999-1", "1-99999999999999", "9999999999999-x"):
        with pytest.raises(InvalidArgument, match="is not a place"):
            journal.list_events(services, pb.ListEventsRequest(after=after), CALL)
    far = pb.ListEventsRequest(after="9999999999999-9999999999999")
    assert not journal.list_events(services, far, CALL).next


def test_series_say_what_they_are_and_are_those_of_a_day_unless_asked_otherwise(services: Services) -> None:
    joined(services, 1)
    services.sampling.sample()
    answer = journal.get_series(services, pb.GetSeriesRequest(), CALL)
    assert {one.name for one in answer.series} == set(SYSTEM_SERIES)
    assert answer.step_s == 60
    (threads,) = [one for one in answer.series if one.name == "threads"]
    assert (threads.label, threads.kind, threads.points[0].sum) == ("default", "level", 1)
    now_ms = round(services.sampling.now().timestamp() * 1000)
    before = pb.GetSeriesRequest(names=["threads"], since_ms=now_ms - 2 * DAY_MS, until_ms=now_ms - DAY_MS)
    assert [len(one.points) for one in journal.get_series(services, before, CALL).series] == [0]
    other = pb.GetSeriesRequest(names=["threads"], label="nightly")
    assert list(journal.get_series(services, other, CALL).series) == []
