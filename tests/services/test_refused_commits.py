"""Commits that storage or catalog refuses or puts off: seen at once, tried again, ended where that is pointless."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.admin.messages import tables as messages
from amoro_core.errors import AccessDenied, AmoroError, CatalogUnavailable, CommitUnknown, IllegalState, TableRefused
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.model.processes import CommitAttempt, CommitOutcome, OptimizingProcess, ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.services.overview import OverviewService
from amoro_core.store import commits
from tests.faults.storage import Kind, Operation, StorageFault, Trouble, failing, storage_faults
from tests.services.rigs import raising
from tests.services.world import World

REFUSED, UNKNOWN = CommitOutcome.REFUSED, CommitOutcome.UNKNOWN


@pytest.fixture(autouse=True)
def _storage() -> Iterator[None]:
    with storage_faults():
        yield


def known(world: World, process: str) -> OptimizingProcess:
    return world.optimizing.find_process(process).process


def attempts(world: World, process: str) -> tuple[CommitAttempt, ...]:
    return tuple(world.store.read(lambda db: commits.list_for_process(db, process)))


def metadata_files(world: World) -> set[str]:
    return {path.name for path in Path(world.catalog.load_table("db.t").location()[7:], "metadata").iterdir()}


def data_files(world: World, process: str) -> list[str]:
    return [path.name for path in Path(world.catalog.load_table("db.t").location()[7:]).rglob(f"{process}*")]


def tried(world: World, process: str, trouble: Trouble, kind: Kind = Kind.MANIFEST) -> AmoroError | ProcessStatus:
    """Where the process comes to, or what keeps it, with storage that can't write files of the kind."""
    with failing(StorageFault(Operation.WRITE, kind, trouble, times=100)):
        try:
            return world.committing.commit(process)
        except AmoroError as error:
            return error


def shown(world: World, process: str) -> str:
    """What `amoro table show` says of the table's status."""
    return messages.table(world.table(), known(world, process), (), "").status_reason


@pytest.mark.parametrize("trouble", [Trouble.DENIED, Trouble.FORBIDDEN])
@pytest.mark.parametrize("kind", [Kind.MANIFEST, Kind.MANIFEST_LIST, Kind.METADATA])
def test_storage_that_denies_a_commit_three_times_ends_it_with_the_reason(
    world: World, process: str, kind: Kind, trouble: Trouble
) -> None:
    before = metadata_files(world)
    for tries in (1, 2):
        error = tried(world, process, trouble, kind)
        assert type(error) is AccessDenied
        now = known(world, process)
        assert now.status is ProcessStatus.COMMITTING
        assert now.delay is not None
        assert (now.delay.code, now.delay.reason, now.delay.tries, now.delay.refusals) == (
            "AMORO-1013",
            error.message,
            tries,
            tries,
        )
        assert shown(world, process) == now.waiting
        assert now.waiting.startswith(f"waiting to commit: {error.message}, next try at 2026-03-01 12:00:")
        world.restart()  # what it waits for is kept

    assert tried(world, process, trouble, kind) is ProcessStatus.FAILED

    end = known(world, process)
    assert (end.failure_code, end.delay) == ("AMORO-1006", None)
    assert ("denied" if trouble is Trouble.DENIED else "ACCESS_DENIED") in end.failure
    assert end.failure.endswith("; tried 3 times")
    assert [one.outcome for one in attempts(world, process)] == ([REFUSED] * 3 if kind is Kind.METADATA else [])
    assert (metadata_files(world), data_files(world, process)) == (before, [])
    runtime = world.table()
    assert (runtime.status, runtime.failures) == (OptimizingStatus.IDLE, 1)
    assert runtime.status_reason == f"minor failed: {end.failure}"


def test_a_right_that_comes_back_in_time_ends_the_waiting(world: World, process: str) -> None:
    tried(world, process, Trouble.DENIED)
    tried(world, process, Trouble.DENIED)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert known(world, process).delay is None


@pytest.mark.parametrize("trouble", [Trouble.FAILS, Trouble.BUSY, Trouble.FULL])
def test_trouble_of_the_moment_is_shown_and_never_ends_the_process(
    world: World, process: str, trouble: Trouble
) -> None:
    changes = world.heard.changes
    for tries, pause in enumerate((5, 10, 20, 40, 60, 60), start=1):
        error = tried(world, process, trouble)
        assert isinstance(error, AmoroError)
        now = known(world, process)
        assert now.delay is not None
        assert (now.delay.tries, now.delay.refusals, now.delay.retry_at) == (
            tries,
            0,
            world.now + timedelta(seconds=pause),
        )
        assert world.optimizing.list_committing() == []
        world.later(pause)
        assert world.optimizing.list_committing() == [(process, "cat")]
    assert world.heard.changes == changes + 6  # who waits hears of each
    world.restart()
    assert world.heard.commits == [process]
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert known(world, process).waiting == ""


def test_after_a_restart_a_commit_is_tried_at_once(world: World, process: str) -> None:
    tried(world, process, Trouble.FAILS)
    world.restart()
    assert world.heard.commits == [process]


def test_an_error_that_nobody_foresaw_is_shown_too(world: World, process: str) -> None:
    def broken(self: IcebergTable, *arguments: object) -> object:
        raise LookupError("no such thing")

    world.iceberg.table(stage=broken)
    with pytest.raises(LookupError):
        world.committing.commit(process)
    assert known(world, process).waiting == (
        "waiting to commit: LookupError: no such thing, next try at 2026-03-01 12:00:05 UTC"
    )


# Cancelling


def test_a_commit_that_waits_can_be_cancelled_and_leaves_nothing_behind(world: World, process: str) -> None:
    before = metadata_files(world)
    tried(world, process, Trouble.FAILS, Kind.METADATA)

    view = world.optimizing.cancel(process, "no more")

    assert (view.process.status, view.process.failure, view.process.delay) == (
        ProcessStatus.CLOSED,
        "no more; 2 of 2 tasks were done",
        None,
    )
    assert world.table().status is OptimizingStatus.IDLE
    assert world.heard.left_over == [process]
    world.clearing.clean_up(process)
    assert (metadata_files(world), data_files(world, process)) == (before, [])
    assert world.committing.commit(process) is ProcessStatus.CLOSED


def test_a_process_that_was_cancelled_while_it_staged_its_commit_sends_nothing(world: World, process: str) -> None:
    before, stage = metadata_files(world), IcebergTable.stage

    def staged(self: IcebergTable, *arguments: object) -> object:
        made = stage(self, *arguments)
        world.optimizing.cancel(process, "no more")
        return made

    world.iceberg.table(stage=staged)

    assert world.committing.commit(process) is ProcessStatus.CLOSED

    assert (attempts(world, process), metadata_files(world)) == ((), before)
    assert known(world, process).failure == "no more; 2 of 2 tasks were done"


@pytest.mark.parametrize("when", ["sent", "unknown"])
def test_a_commit_that_was_sent_can_not_be_cancelled_and_says_why(world: World, process: str, when: str) -> None:
    said: list[str] = []

    def send(self: IcebergTable, payload: bytes) -> None:
        with pytest.raises(IllegalState) as caught:
            world.optimizing.cancel(process, "no more")
        said.append(caught.value.message)
        raise CommitUnknown("503")

    world.iceberg.table(send=send)
    assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
    (attempt,) = attempts(world, process)
    if when == "sent":
        sent = f"its commit was sent (attempt 1, snapshot {attempt.snapshot_id})"
        assert said == [f"process {process} can't be cancelled: {sent}"]
    else:
        with pytest.raises(IllegalState, match="it is not known whether its commit was applied"):
            world.optimizing.cancel(process, "no more")


# Unknown attempts


def unheard(world: World, process: str) -> None:
    with world.iceberg.lose_answers(arrives=False):
        assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN


@pytest.mark.parametrize(
    "error",
    [
        AccessDenied("no right"),
        CatalogUnavailable("no answer"),
        TableRefused("the table's format version is 9", reason="format-version"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_unknown_commit_waits_whatever_is_refused_until_the_table_tells(
    world: World, process: str, error: AmoroError
) -> None:
    unheard(world, process)
    load: Callable[..., IcebergTable] = IcebergFormat.load

    def refused(*arguments: object) -> IcebergTable:
        raise error

    world.iceberg.catalog(load=refused)
    for tries in range(1, 6):
        with pytest.raises(type(error)):
            world.committing.commit(process)
        now = known(world, process)
        assert (now.status, now.failure, now.delay is not None and now.delay.tries) == (
            ProcessStatus.COMMIT_UNKNOWN,
            "503",
            tries,
        )
    assert now.waiting.startswith(f"waiting to know whether it was committed: {error.message}, next try at ")
    assert shown(world, process) == now.waiting
    assert [one.outcome for one in attempts(world, process)] == [UNKNOWN]
    world.iceberg.catalog(load=load)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS


def test_an_attempt_that_was_only_written_down_is_not_ended_by_a_refusal(world: World, process: str) -> None:
    """The coordinator may have died right after it was sent."""

    def died(self: IcebergTable, payload: bytes) -> None:
        raise KeyboardInterrupt

    with world.iceberg.table(send=died), pytest.raises(KeyboardInterrupt):
        world.committing.commit(process)
    load: Callable[..., IcebergTable] = IcebergFormat.load

    def refused(*arguments: object) -> IcebergTable:
        raise TableRefused("encrypted", reason="encryption")

    world.iceberg.catalog(load=refused)
    with pytest.raises(TableRefused):
        world.committing.commit(process)
    assert known(world, process).status is ProcessStatus.COMMITTING
    world.iceberg.catalog(load=load)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS


def test_an_unknown_commit_that_the_table_answers_again_about_waits_for_nothing(world: World, process: str) -> None:
    unheard(world, process)
    with world.iceberg.catalog(load=raising(CatalogUnavailable("no answer"))), pytest.raises(CatalogUnavailable):
        world.committing.commit(process)
    assert known(world, process).delay is not None
    unheard(world, process)
    assert known(world, process).delay is None


def test_a_sending_again_that_storage_denies_leaves_it_unknown(world: World, process: str) -> None:
    unheard(world, process)
    for _ in range(4):
        assert tried(world, process, Trouble.DENIED, Kind.METADATA) is ProcessStatus.COMMIT_UNKNOWN
        assert [one.outcome for one in attempts(world, process)] == [UNKNOWN]
    assert world.committing.commit(process) is ProcessStatus.SUCCESS


def test_how_the_last_process_of_a_table_failed_is_known_after_the_table_was_looked_at_again(
    world: World, process: str
) -> None:
    overview = OverviewService(world.store)
    assert overview.last_failure(world.table().table_id) == ""
    for _ in range(3):
        tried(world, process, Trouble.DENIED)
    world.tables.refresh(world.table().table_id)
    end = known(world, process)
    assert overview.last_failure(world.table().table_id) == f"minor {process}: [AMORO-1006] {end.failure}"
    world.later(1)
    again = world.begin(OptimizingType.MINOR)
    world.run_all(again)
    assert world.committing.commit(again) is ProcessStatus.SUCCESS
    assert overview.last_failure(world.table().table_id) == ""
