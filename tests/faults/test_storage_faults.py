"""Every single read and write of planning, rewriting and committing fails once: nothing wrong is ever committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from amoro_core.errors import AmoroError, CatalogUnavailable
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from tests.engine.writer import make_catalog
from tests.faults.storage import Kind, Operation, StorageFault, Trouble, failing, storage_faults
from tests.faults.world import World
from tests.tiers import count, current_tier, sample

FULL = OptimizingType.FULL
NAMED = (Kind.METADATA, Kind.MANIFEST_LIST, Kind.MANIFEST)
#: More operations on one kind of file than any step needs here; below `make test-all` only the first one fails.
MANY = count(1, 40)
READS = [(kind, trouble) for kind in Kind for trouble in (Trouble.FAILS, Trouble.BUSY, Trouble.TRUNCATED, Trouble.SLOW)]
#: One trouble for each kind of file, each trouble once, unless all are tried.
SOME_READS = sample(READS, every=5)


@pytest.fixture(autouse=True)
def _storage() -> Iterator[None]:
    with storage_faults():
        yield


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A table whose manifests hold files that stay (partition c) beside files that are rewritten."""
    catalog = make_catalog(tmp_path)
    made = World(tmp_path / "home", catalog, partitioned=True)
    made.fill()
    made.lake.append(made.new_rows(("a", "b", "c"), 3))
    yield made
    made.close()
    catalog.close()


def each_strike(operation: Operation, kind: Kind, trouble: Trouble, attempt: Callable[[StorageFault], None]) -> int:
    """Attempt with the fault at the first operation, at the second, and so on to the last; returns how many.

    Troubles that look alike to us are tried at the first only.
    """
    for skip in range(MANY if trouble in (Trouble.FAILS, Trouble.TRUNCATED) else 1):
        fault = StorageFault(operation, kind, trouble, skip)
        attempt(fault)
        if not fault.struck:
            return skip
    assert current_tier() != "all" or trouble not in (Trouble.FAILS, Trouble.TRUNCATED), f"more than {MANY} operations"
    return 1


def tried(step: Callable[[], object], fault: StorageFault) -> AmoroError | None:
    """Run one step against the fault; any error has to be one of ours."""
    with failing(fault):
        try:
            step()
        except AmoroError as error:
            print(f"{fault.struck}: {type(error).__name__}: {error.message}")
            return error
    return None


def finished(world: World, process_id: str) -> ProcessStatus:
    """Where the process comes to once the store works again."""
    for _ in range(4):
        world.require_consistent(process_id)
        if world.commit(process_id) not in ACTIVE_PROCESS_STATUSES:
            break
    return world.require_ended(process_id, leaves_files=True)


@pytest.mark.parametrize(("kind", "trouble"), [pair for pair in SOME_READS if pair[0] is not Kind.PARQUET])
def test_planning_meets_a_store_that_fails(world: World, kind: Kind, trouble: Trouble) -> None:
    def attempt(fault: StorageFault) -> None:
        table_id = world.table().table_id
        error = tried(lambda: world.planning.begin(table_id, trigger="request", requested=FULL), fault)
        assert (error is not None) == bool(fault.struck)
        if error is not None:
            assert world.table().status is OptimizingStatus.IDLE
            assert world.optimizing.active_process(table_id) is None

    assert each_strike(Operation.READ, kind, trouble, attempt) > 0
    planned = world.optimizing.list_processes()
    process_id = planned[0].process.process_id if planned else world.begin(FULL)
    assert world.work() == []
    assert finished(world, process_id) is ProcessStatus.SUCCESS


@pytest.mark.parametrize(("operation", "trouble"), sample(list(product(Operation, Trouble)), every=5))
def test_rewriting_meets_a_store_that_fails(world: World, operation: Operation, trouble: Trouble) -> None:
    def attempt(fault: StorageFault) -> None:
        world.upsert(0, 1)
        process_id = world.begin(FULL)
        with failing(fault):
            failures = world.work()
        assert len(failures) == len(fault.struck)
        # A full disk is not tried again at once: the process ends, and the next one succeeds.
        is_over = trouble is Trouble.FULL and bool(fault.struck)
        assert finished(world, process_id) is (ProcessStatus.FAILED if is_over else ProcessStatus.SUCCESS)
        assert {str(path) for path in world.files(f"{process_id}*")} == world.outputs(process_id)

    assert each_strike(operation, Kind.PARQUET, trouble, attempt) > 0


@pytest.mark.parametrize(("kind", "trouble"), SOME_READS)
def test_committing_meets_a_store_that_can_not_be_read(world: World, kind: Kind, trouble: Trouble) -> None:
    def attempt(fault: StorageFault) -> None:
        world.upsert(0, 1)
        process_id = world.rewritten()
        error = tried(lambda: world.commit(process_id), fault)
        status = finished(world, process_id)
        if error is not None or not fault.struck:
            assert status is ProcessStatus.SUCCESS

    assert each_strike(Operation.READ, kind, trouble, attempt) > 0
    world.fill()
    world.optimized()


@pytest.mark.parametrize(("kind", "trouble"), sample(list(product(NAMED, Trouble)), every=8))
def test_committing_meets_a_store_that_can_not_be_written(world: World, kind: Kind, trouble: Trouble) -> None:
    def attempt(fault: StorageFault) -> None:
        world.upsert(0, 1)
        process_id = world.rewritten()
        before = world.files("metadata/*.avro")
        error = tried(lambda: world.commit(process_id), fault)
        if fault.struck:
            assert error is not None
            assert kind is Kind.METADATA or world.commits(process_id) == ()
            assert world.files("metadata/*.avro") == before
        assert finished(world, process_id) is ProcessStatus.SUCCESS
        # The metadata file is written by pyiceberg, when the attempt is written down: then it is known that it failed.
        lost = [CommitOutcome.REFUSED] if fault.struck and kind is Kind.METADATA else []
        assert [one.outcome for one in world.commits(process_id)] == [*lost, CommitOutcome.DONE]

    assert each_strike(Operation.WRITE, kind, trouble, attempt) > 0


def test_commit_cut_by_what_ends_the_process_is_finished_after_a_restart(world: World) -> None:
    for error in (KeyboardInterrupt(), SystemExit(1), MemoryError()):
        world.upsert(0, 1)
        process_id = world.rewritten()
        fault = StorageFault(Operation.WRITE, Kind.METADATA, Trouble.FAILS, error=error)
        with failing(fault), suppress(type(error), CatalogUnavailable):
            world.commit(process_id)
        assert fault.struck != []
        world.require_consistent(process_id)
        expected = CommitOutcome.REFUSED if isinstance(error, Exception) else CommitOutcome.SENT
        assert [one.outcome for one in world.commits(process_id)] == [expected]
        assert finished(world, process_id) is ProcessStatus.SUCCESS
