"""Tables whose commits meet faults by chance, while another writer goes on and the coordinator dies."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from amoro_core.errors import CatalogUnavailable
from amoro_core.model.processes import ProcessStatus
from tests.engine.chance import seed_ids
from tests.faults.proxy import Applied, Cut, Fault, Proxy
from tests.faults.rest import give_up_hanging
from tests.faults.world import World, rest_catalog

COMMITS_PER_TABLE = 10
#: After so many tries the faults end, and the commit must come to its end.
FAULTY_TRIES = 5
TRIES = 12

_REFUSALS = (400, 401, 403, 404, 422, 429)
_UNCLEAR: tuple[int | Cut, ...] = (419, 500, 501, 502, 503, 504, 507, *(cut for cut in Cut if cut is not Cut.HANG))


def random_fault(chance: random.Random) -> Fault | None:
    """A fault that a catalog may show; what it calls refused or a conflict it does not apply later."""
    answer: int | Cut = chance.choice(_UNCLEAR)
    match chance.choices(("now", "never", "late", "refused", "conflict", "hang", "honest"), (5, 4, 5, 1, 1, 0.3, 2))[0]:
        case "now":
            return Fault(Applied.NOW, chance.choice((answer, answer, answer, 409)))
        case "never":
            return Fault(Applied.NEVER, answer)
        case "late":
            return Fault(Applied.LATE, answer, chance.randrange(9))
        case "refused":
            return Fault(Applied.NEVER, chance.choice(_REFUSALS))
        case "conflict":
            return Fault(Applied.NEVER, 409)
        case "hang":
            return Fault(chance.choice(list(Applied)), Cut.HANG, chance.randrange(5))
    return None


def is_refusal(fault: Fault | None) -> bool:
    return fault is not None and fault.answer in _REFUSALS


def run(
    seed: int, directory: Path, totals: Counter[str], *, carries_deletes: bool = False, commits: int = COMMITS_PER_TABLE
) -> None:
    """Commit to one table so often; the seed decides table, faults, writes and deaths. Counts in `totals`.

    With `carries_deletes` a row of each plan's files is deleted by position before its commit, which meets a fault.
    Raises AssertionError when a commit landed twice, a row differs from the model's, or a process does not end.
    """
    chance = random.Random(seed)
    with rest_catalog(directory) as (catalog, server, config), pytest.MonkeyPatch.context() as patch:
        proxy = server.proxy
        give_up_hanging(patch, proxy)
        seed_ids(patch, random.Random(seed))
        version, partitioned = chance.choice((2, 3) if carries_deletes else (2, 3, 2, 1)), chance.random() < 0.5
        world = World(directory / "home", catalog, config, version=version, partitioned=partitioned)
        try:
            for number in range(commits):
                world.fill()
                process_id = world.rewritten()
                if carries_deletes:
                    world.delete(chance.choice(world.ids))
                played = len(proxy.played)
                commit_with_faults(world, proxy, chance, process_id, fewest=int(carries_deletes))
                totals["commits"] += 1
                totals["faulty commits"] += len(proxy.played) > played
                totals["faults"] += len(proxy.played) - played
                process = world.process(process_id)
                totals[f"ended {process.status}"] += 1
                figures = {one.name: one.value for one in process.receipt.figures} if process.receipt else {}
                if figures.get("rows_carried_over") and len(proxy.played) > played:
                    totals["faulty commits with deletes carried over"] += 1
                    totals[f"of them in format {version}"] += 1
                print(f"seed {seed}, commit {number}: {process.status}")
        finally:
            world.store.close()


def commit_with_faults(world: World, proxy: Proxy, chance: random.Random, process_id: str, fewest: int = 0) -> None:
    """Commit until the process has ended; the coordinator may be restarted meanwhile.

    `fewest` of the first requests to commit, or more, are at the mercy of a random fault.
    """
    script = [random_fault(chance) for _ in range(chance.randrange(fewest, 4))]
    print(f"process {process_id}:", *(str(fault) for fault in script), sep="\n  ")
    proxy.plan(*script)
    is_changed = is_unavailable = False
    for tried in range(TRIES):
        if tried == FAULTY_TRIES:
            proxy.script.clear()
            proxy.loads.clear()
            proxy.release()
        if tried < FAULTY_TRIES and chance.random() < 0.25:
            is_changed = True
            if chance.random() < 0.5:
                world.change(chance)
            else:
                proxy.before_commit = lambda: world.change(chance)
        if tried < FAULTY_TRIES and chance.random() < 0.15:
            is_unavailable = True  # also while files are to be removed: they stay
            proxy.loads.extend([0] * chance.randrange(4) + [503])
        try:
            world.commit(process_id)
        except CatalogUnavailable as error:
            print(f"  {error.message}")
        world.require_consistent(process_id)
        if not world.process(process_id).is_active:
            break
        if chance.random() < 0.3:
            world.restart()
            assert world.heard.commits == [process_id]
    proxy.before_commit = None
    proxy.loads.clear()
    proxy.script.clear()
    status = world.require_ended(process_id, leaves_files=is_unavailable)
    # What was answered long ago may still be applied.
    proxy.release()
    assert world.require_ended(process_id, leaves_files=is_unavailable) is status
    if not is_changed and not any(map(is_refusal, script)):
        assert status is ProcessStatus.SUCCESS
