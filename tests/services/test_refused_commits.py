"""Commits that storage, catalog or another table refuse or put off, and what each attempt reads."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from amoro_core.admin import tables as messages
from amoro_core.errors import (
    AccessDenied,
    AmoroError,
    CatalogUnavailable,
    CommitConflict,
    CommitUnknown,
    IllegalState,
    TableRefused,
)
from amoro_core.files.storage.io import ConfinedFileIO
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.iceberg.manifest.manifest_cache import TableManifestCache
from amoro_core.model.processes import CommitOutcome, ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.services.task_lifecycle import Failure
from amoro_core.store import tables
from tests.engine import oracle, writer, writer3
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.faults.storage import Kind, Operation, StorageFault, Trouble, failing, storage_faults
from tests.services.rigs import raising
from tests.services.world import World, make_two_partitions
from tests.tiers import sample

REFUSED, UNKNOWN = CommitOutcome.REFUSED, CommitOutcome.UNKNOWN


@pytest.fixture(autouse=True)
def _storage() -> Iterator[None]:
    with storage_faults():
        yield


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
    return messages.table_message(world.table(), world.process(process), (), "").status_reason


@pytest.mark.parametrize(
    ("kind", "trouble"),
    sample(
        [*product((Kind.MANIFEST, Kind.MANIFEST_LIST, Kind.METADATA), (Trouble.DENIED, Trouble.FORBIDDEN))], every=5
    ),
)
def test_storage_that_denies_a_commit_three_times_ends_it_with_the_reason(
    world: World, process: str, kind: Kind, trouble: Trouble
) -> None:
    before = metadata_files(world)
    assert world.services.overview.last_failure(world.table().table_id) == ""
    for tries in (1, 2):
        error = tried(world, process, trouble, kind)
        assert type(error) is AccessDenied
        now = world.process(process)
        assert now.status is ProcessStatus.COMMITTING
        delay = now.delay
        assert (delay.code, delay.reason, delay.tries, delay.refusals) == ("AMORO-1013", error.message, tries, tries)
        assert shown(world, process) == now.waiting
        assert now.waiting.startswith(f"waiting to commit: {error.message}, next try at 2026-03-01 12:00:")
        world.restart()  # what it waits for is kept

    assert tried(world, process, trouble, kind) is ProcessStatus.FAILED

    end = world.process(process)
    assert (end.failure_code, end.delay) == ("AMORO-1006", None)
    assert ("denied" if trouble is Trouble.DENIED else "ACCESS_DENIED") in end.failure
    assert end.failure.endswith("; tried 3 times")
    assert world.outcomes(process) == ([REFUSED] * 3 if kind is Kind.METADATA else [])
    assert (metadata_files(world), data_files(world, process)) == (before, [])
    runtime = world.table()
    assert (runtime.status, runtime.failures) == (OptimizingStatus.IDLE, 1)
    assert runtime.status_reason == f"minor failed: {end.failure}"
    world.tables.refresh(runtime.table_id)
    assert world.services.overview.last_failure(runtime.table_id) == f"minor {process}: [AMORO-1006] {end.failure}"
    world.later(1)
    assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS
    assert world.services.overview.last_failure(runtime.table_id) == ""


@pytest.mark.parametrize("trouble", [Trouble.FAILS, Trouble.BUSY, Trouble.FULL])
def test_trouble_of_the_moment_is_shown_and_never_ends_the_process(
    world: World, process: str, trouble: Trouble
) -> None:
    changes = world.heard.changes
    for tries, pause in enumerate((5, 10, 20, 40, 60, 60), start=1):
        error = tried(world, process, trouble)
        assert isinstance(error, AmoroError)
        now = world.process(process)
        retry_at = world.now + timedelta(seconds=pause)
        assert (now.delay.tries, now.delay.refusals, now.delay.retry_at) == (tries, 0, retry_at)
        assert world.optimizing.list_committing() == []
        world.later(pause)
        assert world.optimizing.list_committing() == [(process, "cat")]
    assert world.heard.changes == changes + 6  # who waits hears of each
    world.restart()
    assert world.heard.commits == [process]
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    assert world.process(process).waiting == ""


def test_an_error_that_nobody_foresaw_is_shown_too(world: World, process: str) -> None:
    world.iceberg.table(stage=raising(LookupError("no such thing")))
    with pytest.raises(LookupError):
        world.committing.commit(process)
    assert world.process(process).waiting == (
        "waiting to commit: LookupError: no such thing, next try at 2026-03-01 12:00:05 UTC"
    )


# Cancelling


def test_a_commit_that_waits_can_be_cancelled_and_leaves_nothing_behind(world: World, process: str) -> None:
    before = metadata_files(world)
    tried(world, process, Trouble.FAILS, Kind.METADATA)

    view = world.optimizing.cancel(process, "no more")

    ended = view.process
    assert (ended.status, ended.failure, ended.delay) == (ProcessStatus.CLOSED, "no more; 2 of 2 tasks done", None)
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

    assert (world.commits(process), metadata_files(world)) == ((), before)
    assert world.process(process).failure == "no more; 2 of 2 tasks done"


def test_a_commit_that_was_sent_can_not_be_cancelled_and_says_why(world: World, process: str) -> None:
    def refused() -> str:
        with pytest.raises(IllegalState) as caught:
            world.optimizing.cancel(process, "no more")
        return caught.value.message

    said: list[str] = []

    def meanwhile() -> None:
        said.append(refused())
        raise CommitUnknown("503")

    world.iceberg.before_sending(meanwhile)
    assert world.committing.commit(process) is ProcessStatus.COMMIT_UNKNOWN
    (attempt,) = world.commits(process)
    sent = f"its commit was sent (attempt 1, snapshot {attempt.snapshot_id})"
    assert said == [f"process {process} can't be cancelled: {sent}"]
    assert "it is not known whether its commit was applied" in refused()


# Unknown attempts


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
    world.commit_unknown(process, arrives=False)
    world.iceberg.catalog(load=raising(error))
    for tries in range(1, 6):
        with pytest.raises(type(error)):
            world.committing.commit(process)
        now = world.process(process)
        assert (now.status, now.failure, now.delay.tries) == (ProcessStatus.COMMIT_UNKNOWN, "no answer", tries)
    assert now.waiting.startswith(f"waiting to know whether it was committed: {error.message}, next try at ")
    assert shown(world, process) == now.waiting
    assert world.outcomes(process) == [UNKNOWN]
    world.iceberg.restore()
    world.commit_unknown(process, arrives=False)
    assert world.process(process).delay is None
    assert world.committing.commit(process) is ProcessStatus.SUCCESS


def test_a_sending_again_that_storage_denies_leaves_it_unknown(world: World, process: str) -> None:
    world.commit_unknown(process, arrives=False)
    for _ in range(4):
        assert tried(world, process, Trouble.DENIED, Kind.METADATA) is ProcessStatus.COMMIT_UNKNOWN
        assert world.outcomes(process) == [UNKNOWN]
    assert world.committing.commit(process) is ProcessStatus.SUCCESS


# A table that is dropped and made anew under its name while a process runs: identity first, numbers afterwards


def made_anew(world: World, appends: int = 1) -> Table:
    """The table dropped and made again at its place, with fewer commits than the process was planned on."""
    world.catalog.drop_table("db.t")
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART)
    for number in range(appends):
        writer.append(table, [row(number, "a", "anew")])
    return table


def planned_on(world: World, process: str, table: Table) -> str:
    return (
        f"cat.db.t is another table: UUID {table.metadata.table_uuid}, planned on {world.process(process).table_uuid}"
    )


def files_below(table: Table) -> set[str]:
    root = Path(table.location().removeprefix("file://"))
    return {str(path) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("appends", [0, 1])
def test_a_table_made_anew_with_fewer_commits_ends_the_process_and_is_free_at_once(
    world: World, process: str, appends: int
) -> None:
    table = made_anew(world, appends)
    before, there = oracle.live_rows(table), files_below(table)

    assert world.committing.commit(process) is ProcessStatus.FAILED

    end = world.process(process)
    assert (end.failure_code, end.failure) == (
        CommitConflict.code,
        planned_on(world, process, table)
        + " (It was dropped and created again, or renamed; what has the name now is optimized on its own.)",
    )
    runtime = world.table()
    assert (runtime.status, runtime.failures, runtime.retry_at) == (OptimizingStatus.IDLE, 0, None)
    oracle.assert_same_rows(before, oracle.live_rows(world.catalog.load_table("db.t")))
    # A reference check on another table proves nothing, so nothing is removed.
    assert files_below(table) == there
    if appends:
        for number in range(3):
            writer.append(table, [row(10 + number, "a")])
        assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS


@pytest.mark.parametrize("step", ["head", "send"])
def test_a_table_made_anew_while_its_commit_is_made_ends_the_process_untouched(
    world: World, process: str, step: str
) -> None:
    plain, there = getattr(IcebergTable, step), set[str]()

    def late(self: IcebergTable, *given: object) -> object:
        there.update(files_below(made_anew(world)))
        return plain(self, *given)

    world.iceberg.table(**{step: late})
    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert world.process(process).failure_code == CommitConflict.code
    assert files_below(world.catalog.load_table("db.t")) == there


@pytest.mark.parametrize("appends", [0, 1, 8], ids=["empty", "fewer commits", "more commits"])
def test_an_unknown_commit_on_a_table_made_anew_ends_and_none_of_its_files_is_removed(
    world: World, process: str, appends: int
) -> None:
    world.commit_unknown(process, arrives=False)
    (attempt,) = world.commits(process)
    table = made_anew(world, appends)
    there = files_below(table)

    assert world.committing.commit(process) is ProcessStatus.FAILED

    end = world.process(process)
    assert end.failure_code == CommitConflict.code
    assert end.failure.startswith(planned_on(world, process, table))
    assert end.failure.endswith("; whether a commit to it was applied is not known, and none of its files is removed")
    assert world.clearing.clean_up(process) == ()
    assert files_below(table) == there
    assert {path.removeprefix("file://") for path in (*attempt.files, *attempt.metadata_files)} <= there
    assert world.table().status is OptimizingStatus.IDLE


def test_a_running_process_is_ended_once_its_table_is_seen_to_be_another(world: World) -> None:
    make_two_partitions(world.catalog)
    process = world.begin(OptimizingType.MINOR)
    why = planned_on(world, process, made_anew(world)) + "; 0 of 2 tasks done"
    world.refresh()

    view = world.optimizing.cancel_unwanted(world.table().table_id)

    end = view.process
    assert (end.status, end.failure_code, end.failure) == (ProcessStatus.CLOSED, CommitConflict.code, why)
    assert {task.status for task in view.tasks} == {TaskStatus.CANCELED}
    assert world.table().status is OptimizingStatus.IDLE


def test_what_was_known_of_the_dropped_table_is_forgotten_and_what_people_said_of_the_name_stays(
    world: World, process: str
) -> None:
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    writer.append(world.catalog.load_table("db.t"), [row(50, "a")])
    writer.append(world.catalog.load_table("db.t"), [row(51, "a")])
    world.tables.set_enabled(world.table().identifier, True)
    failing = world.begin(OptimizingType.MINOR)
    while world.status(failing) is ProcessStatus.RUNNING:
        world.run_one(world.optimizer(), Failure("AMORO-1001", "broken"))
    assert world.table().failures == 1
    table = made_anew(world)
    world.later(timedelta(minutes=5).total_seconds())

    runtime = world.refresh()

    assert (runtime.uuid, runtime.enabled_override) == (str(table.metadata.table_uuid), True)
    assert (runtime.failures, runtime.retry_at, runtime.last_optimized_at) == (0, None, None)
    assert (runtime.summary.data_files, runtime.evaluated_at) == (1, world.now)
    assert world.store.read(lambda db: tables.partitions_last_optimized(db, runtime.table_id)) == {}


# What an attempt to commit reads and writes of manifests goes by what changed since the plan, not by the table


LOST = 2  # attempts that others overtake


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is opened of manifests and their lists: how, and which."""
    found: list[tuple[str, str]] = []
    for name in ("new_input", "new_output"):
        plain = getattr(ConfinedFileIO, name)

        def watched(io: ConfinedFileIO, location: str, name: str = name, plain: Any = plain) -> Any:
            if location.endswith(".avro"):
                found.append((name, location))
            return plain(io, location)

        monkeypatch.setattr(ConfinedFileIO, name, watched)
    return found


def counted_attempts(world: World, opened: list[tuple[str, str]]) -> list[tuple[int, int]]:
    """How many manifests and lists each attempt of a commit reads and writes; others delete a row before each."""
    table = world.catalog.load_table("db.t")
    process_id = world.begin_and_run(OptimizingType.FULL)
    stage, counts = IcebergTable.stage, list[tuple[int, int]]()

    def delete(number: int) -> None:
        delete_rows = writer3.delete_rows if table.metadata.format_version == 3 else writer.delete_where
        delete_rows(table, lambda item: item["id"] == number)

    def overtaken(self: IcebergTable, *given: Any) -> Any:
        staged = stage(self, *given)
        read = {path for how, path in opened if how == "new_input"}
        counts.append((len(read), sum(how == "new_output" for how, _ in opened)))
        if len(counts) <= LOST:
            delete(len(counts))
        opened.clear()
        return staged

    world.iceberg.table(stage=overtaken)
    delete(0)
    expected = oracle.live_rows(table)
    opened.clear()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    left = oracle.live_rows(table.refresh())
    assert (left.total(), len(counts)) == (expected.total() - LOST, LOST + 1)
    return counts


@pytest.mark.parametrize("version", [2, 3])
def test_attempts_on_a_table_of_four_times_the_manifests_read_and_write_no_more_of_them(
    world: World, opened: list[tuple[str, str]], version: int
) -> None:
    found = []
    world.iceberg.plain = IcebergFormat(tables=TableManifestCache(2**30, least_files=0))  # as of large tables
    for others in (2, 14):
        table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, version)
        for first in range(2):
            writer.append(table, [row(at * 2 + first, "a") for at in range(4)])
        for number in range(others):
            writer.append(table, [row(1000 + number, f"part{number}")])
        found.append(counted_attempts(world, opened))
        world.catalog.drop_table("db.t")
    assert found[0] == found[1]
