"""Each way in which a catalog can leave a commit's outcome open, and what then becomes of it."""

from __future__ import annotations

from itertools import product

import pytest

from amoro_core.errors import TableBusy
from amoro_core.model.processes import ACTIVE_PROCESS_STATUSES, CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.faults.proxy import Applied, Cut, Fault, Proxy
from tests.faults.world import World, missing
from tests.model.lake import ids_are
from tests.tiers import sample

NOW, NEVER, LATE = Applied.NOW, Applied.NEVER, Applied.LATE
UNCLEAR: list[int | Cut] = [*sample([500, 501, 502, 503, 504, 507], every=6), *Cut]
REFUSALS = sample([403, 400, 404, 422, 429], every=5)


@pytest.fixture
def world(world: World) -> World:
    world.fill()
    return world


@pytest.mark.parametrize("applied", [NOW, NEVER])
@pytest.mark.parametrize("answer", UNCLEAR)
def test_commit_that_was_answered_with_an_error_is_found_or_sent_again_byte_for_byte(
    world: World, proxy: Proxy, answer: int | Cut, applied: Applied
) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(applied, answer))
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    assert world.outcomes(process_id) == [CommitOutcome.UNKNOWN]
    # Nothing is planned or cleaned meanwhile.
    with pytest.raises(TableBusy, match="commit_unknown"):
        world.begin(OptimizingType.FULL)
    assert world.clearing.clean_up(process_id) == ()
    world.require_consistent(process_id)
    world.restart()
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS
    assert world.outcomes(process_id) == [CommitOutcome.DONE]
    assert proxy.applied == [200]
    assert len(proxy.sent) == (1 if applied is NOW else 2)
    assert len(set(proxy.sent)) == 1


@pytest.mark.parametrize("after", sample(range(5), every=4))
@pytest.mark.parametrize("answer", sample([503, Cut.RESET], every=2))
def test_commit_that_is_applied_after_its_error_lands_once(
    world: World, proxy: Proxy, answer: int | Cut, after: int
) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(LATE, answer, after))
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    proxy.release()
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS
    assert proxy.applied.count(200) == 1
    assert set(proxy.applied) <= {200, 409}
    assert len(set(proxy.sent)) == 1


def test_late_commit_whose_second_sending_is_called_a_conflict_stays_unknown(world: World, proxy: Proxy) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(LATE, 503, 1000), Fault(NEVER, 409), Fault(NEVER, 429))
    for _ in range(3):
        assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
        world.require_consistent(process_id)
    assert proxy.release() == 1
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS
    assert proxy.applied == [200]


@pytest.mark.parametrize("kind", [{"version": 1}], ids=["format 1"])
def test_refuted_commit_in_format_1_finds_its_files_when_main_is_set_back_to_its_parent(
    world: World, proxy: Proxy
) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(LATE, 502, 1000))
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.delete(0)
    assert world.commit(process_id) is ProcessStatus.FAILED
    assert world.outcomes(process_id) == [CommitOutcome.REFUTED]
    (attempt,) = world.commits(process_id)
    assert missing((*attempt.files, *attempt.metadata_files)) == []
    assert world.clearing.clean_up(process_id) == ()
    world.lake.set_main(attempt.evidence.parent_snapshot_id)
    assert proxy.release() == 1
    assert proxy.applied == [200]
    world.lake.require()


def test_refuted_commit_can_not_be_applied_even_when_main_is_set_back_to_its_parent(world: World, proxy: Proxy) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(LATE, 502, 1000))
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    parent = world.commits(process_id)[0].evidence.parent_snapshot_id
    world.append()
    world.lake.set_main(parent)
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert proxy.release() == 1
    assert proxy.applied.count(200) == 1
    assert world.snapshots_of(process_id) == 1
    world.lake.require()


@pytest.mark.parametrize("statuses", [*((status,) for status in REFUSALS), (401, 401)])
def test_refused_commit_fails_the_process_and_leaves_nothing_behind(
    world: World, proxy: Proxy, statuses: tuple[int, ...]
) -> None:
    """For its token the client sends it again by itself."""
    process_id = world.rewritten()
    proxy.plan(*(Fault(NEVER, status) for status in statuses))
    assert world.commit(process_id) is ProcessStatus.FAILED
    assert world.require_ended(process_id) is ProcessStatus.FAILED
    assert world.process(process_id).failure_code == "AMORO-1006"
    assert world.outcomes(process_id) == [CommitOutcome.REFUSED]
    assert proxy.applied == []
    assert world.require_ended(world.optimized()) is ProcessStatus.SUCCESS


@pytest.mark.parametrize("status", [*REFUSALS, 409])
def test_commit_that_was_applied_and_answered_with_a_refusal_is_found(world: World, proxy: Proxy, status: int) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(NOW, status))
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS
    assert proxy.applied == [200]


@pytest.mark.parametrize("status", [401, 419])
def test_commit_that_the_client_sent_twice_by_itself_is_found_behind_the_conflict(
    world: World, proxy: Proxy, status: int
) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(NOW, status))
    while world.commit(process_id) in ACTIVE_PROCESS_STATUSES:
        world.require_consistent(process_id)
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS
    assert proxy.applied.count(200) == 1


@pytest.mark.parametrize("second", [409, *REFUSALS])
@pytest.mark.parametrize("after", sample([1, 2, 3, 4, 5, 1000], every=5))
def test_last_answer_of_two_sendings_does_not_hide_that_the_first_is_unknown(
    world: World, proxy: Proxy, after: int, second: int
) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(LATE, 419, after), Fault(NEVER, second))
    world.commit(process_id)
    world.require_consistent(process_id)
    proxy.release()
    world.require_consistent(process_id)
    while world.commit(process_id) in ACTIVE_PROCESS_STATUSES:
        world.require_consistent(process_id)
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS
    assert proxy.applied.count(200) == 1


@pytest.mark.parametrize("kind", [{"partitioned": True}], ids=["partitioned"])
@pytest.mark.parametrize(("answer", "applied"), sample(list(product([502, Cut.RESET], [NOW, NEVER])), every=3))
def test_partition_in_conflict_is_dropped_and_the_rest_survives_an_unknown_commit(
    world: World, proxy: Proxy, applied: Applied, answer: int | Cut
) -> None:
    process_id = world.rewritten()
    world.lake.overwrite(ids_are(0))
    proxy.plan(Fault(applied, answer))
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.require_consistent(process_id)
    assert world.commit(process_id) is ProcessStatus.PARTIAL
    assert world.require_ended(process_id) is ProcessStatus.PARTIAL


@pytest.mark.parametrize(("applied", "answer"), sample(list(product([NOW, NEVER], [409, 403])), every=3))
def test_refusal_that_can_not_be_looked_into_is_unknown(
    world: World, proxy: Proxy, applied: Applied, answer: int
) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(applied, answer))
    # Loaded to commit, and as its head; the third time to look whether the commit landed.
    proxy.loads.extend([0, 0, 503])
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.require_consistent(process_id)
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS
    assert proxy.applied == [200]


def test_unknown_commit_that_another_writer_overtook_is_refuted_and_made_anew(world: World, proxy: Proxy) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(LATE, 502, 1000))
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.append()
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.outcomes(process_id) == [CommitOutcome.REFUTED, CommitOutcome.DONE]
    assert proxy.release() == 1
    assert proxy.applied == [200, 409]
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS


def test_conflict_without_contradiction_is_validated_and_sent_anew(world: World, proxy: Proxy) -> None:
    process_id = world.rewritten()
    proxy.before_commit = world.append
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.outcomes(process_id) == [CommitOutcome.CONFLICT, CommitOutcome.DONE]
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS
    assert proxy.applied == [409, 200]


def test_conflict_over_an_input_fails_the_process_and_its_outputs_are_removed(world: World, proxy: Proxy) -> None:
    process_id = world.rewritten()
    proxy.before_commit = lambda: world.lake.overwrite(ids_are(0))
    assert world.commit(process_id) is ProcessStatus.FAILED
    assert world.process(process_id).failure_code == "AMORO-5001"
    assert world.outcomes(process_id) == [CommitOutcome.CONFLICT]
    assert world.require_ended(process_id) is ProcessStatus.FAILED


def test_commit_that_landed_and_was_expired_is_found_by_its_files(world: World, proxy: Proxy) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(NOW, 504))
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.append()
    writer.expire_snapshots(world.lake.table)
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.outcomes(process_id) == [CommitOutcome.DONE]
    assert world.snapshots_of(process_id) == 0
    world.lake.require()
    assert proxy.applied == [200]
