"""Conditions hold where their expressions have values, and since they first had them."""

from datetime import UTC, datetime, timedelta

from amoro_core.model import metrics
from amoro_core.model.combining import Both, Left, Outside, Ratio, Where
from amoro_core.model.conditions import look
from amoro_core.model.expressions import Counted, Expression, Grown, Least, Most, Sum
from amoro_core.model.known_conditions import CONDITIONS
from amoro_core.model.metrics import Sample
from amoro_core.services.conditions import ConditionService

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TASKS = [
    Sample("amoro_open_tasks", 3, ("a", "planned")),
    Sample("amoro_open_tasks", 2, ("a", "acked")),
    Sample("amoro_open_tasks", 5, ("b", "planned")),
    Sample("amoro_optimizer_threads", 0, ("a",)),
    Sample("amoro_optimizer_threads", 4, ("b",)),
]
GROUP = ("group",)
TOTAL = Sum(metrics.TASKS, GROUP)
THREADS = Sum(metrics.THREADS, GROUP)


def values(expression: Expression, *samples: Sample, **more: object) -> dict[tuple[str, ...], float]:
    return dict(expression.values(Counted(samples or TASKS, **more)))


def test_sums_and_extremes_go_by_labels() -> None:
    assert values(TOTAL) == {("a",): 5, ("b",): 5}
    assert values(Sum(metrics.TASKS)) == {(): 10}
    assert values(Sum(metrics.TASKS, GROUP, {"status": ("acked", "scheduled")})) == {("a",): 2}
    assert values(Most(metrics.TASKS, GROUP)) == {("a",): 3, ("b",): 5}
    assert values(Least(metrics.TASKS, GROUP)) == {("a",): 2, ("b",): 5}
    assert values(Sum(metrics.LEADER)) == {}


def test_comparisons_keep_values_and_conjunctions_the_first_ones() -> None:
    assert values(Where(TOTAL, ">", 5)) == {}
    assert values(Where(TOTAL, ">=", 5)) == {("a",): 5, ("b",): 5}
    assert values(Where(THREADS, "<", 4)) == {("a",): 0}
    assert values(Both(TOTAL, (Where(THREADS, "==", 0),))) == {("a",): 5}


def test_a_part_of_nothing_has_no_value() -> None:
    assert values(Ratio(TOTAL, THREADS)) == {("b",): 1.25}


def test_growth_counts_from_an_hour_ago_or_from_nothing() -> None:
    ended = Sample("amoro_processes_total", 7, ("full", "failed"))
    grown = Grown(metrics.ENDED, ("result",))
    assert values(grown, ended) == {("failed",): 7}
    before = {("amoro_processes_total", ("full", "failed")): 4.0}
    assert values(grown, ended, hour_ago=before) == {("failed",): 3}


def test_moments_are_told_as_what_is_left() -> None:
    end = Sample("amoro_certificate_expiry_seconds", 1000)
    assert values(Left(Least(metrics.CERTIFICATE_END)), end, now_s=1030.0) == {(): -30}


def test_what_only_others_can_see_never_holds() -> None:
    assert values(Outside("absent(up)")) == {}


def test_a_condition_is_raised_once_it_has_lasted() -> None:
    samples = [Sample("amoro_state_disk_free_ratio", 0.05)]
    (held,) = look(CONDITIONS, Counted(samples), (), NOON)
    assert (held.condition.name, held.text, held.since) == (
        "disk-low",
        "5% of the disk with the state directory is free",
        NOON,
    )
    last = NOON + held.condition.lasts
    (again,) = look(CONDITIONS, Counted(samples), (held,), last)
    assert (again.since, again.is_raised(last - timedelta(seconds=1)), again.is_raised(last)) == (NOON, False, True)
    assert look(CONDITIONS, Counted([Sample("amoro_state_disk_free_ratio", 0.5)]), (again,), last) == ()
    set_back = NOON - timedelta(hours=1)  # a clock that is set back must not make it hold in the future
    assert look(CONDITIONS, Counted(samples), (held,), set_back)[0].since == set_back


class Told:
    """A service whose samples and clock are set by hand."""

    def __init__(self) -> None:
        self.now, self.failed, self.reads = NOON, 0.0, 0
        self.service = ConditionService(self._read, lambda: self.now)

    def _read(self) -> list[Sample]:
        self.reads += 1
        return [Sample("amoro_failed_checks_total", self.failed, ("full",))]

    def names(self, later: timedelta) -> list[str]:
        self.now += later
        return [held.condition.name for held in self.service.look()[0]]


def test_what_happened_is_held_for_an_hour() -> None:
    told = Told()
    minute = timedelta(minutes=1)
    assert told.names(minute) == []
    told.failed += 1
    assert [told.names(minute) for _ in range(60)] == [["check-failed"]] * 60
    assert told.names(minute) == []
    told.failed += 1
    assert told.names(minute) == ["check-failed"]


def test_many_who_ask_at_once_cost_one_reading() -> None:
    told = Told()
    for _ in range(10):
        told.names(timedelta(milliseconds=50))
    assert told.reads == 1
    told.names(timedelta(seconds=1))
    assert told.reads == 2
