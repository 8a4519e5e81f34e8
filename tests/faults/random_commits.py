"""Tables whose commits meet faults by chance, while another writer goes on and the coordinator dies."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from amoro_core.errors import CatalogUnavailable
from amoro_core.model.processes import ProcessStatus
from tests.engine.chance import seed_ids
from tests.faults.proxy import Applied, Cut, Fault, Proxy
from tests.faults.rest import give_up_hanging
from tests.faults.world import World, rest_catalog
from tests.model.crashes import Died, SteppedWorld, dying

COMMITS_PER_TABLE = 10
#: After so many tries the faults end, and the commit must come to its end.
FAULTY_TRIES = 5
TRIES = 12
#: The coordinator dies at one of so many effects of a commit.
EFFECTS = 8

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
                meddle, check = partial(world.change, chance), partial(world.require_consistent, process_id)
                fewest = int(carries_deletes)
                happened = commit_with_faults(world, proxy, chance, process_id, meddle, check, fewest=fewest, busy=0.15)
                status = world.require_ended(process_id, leaves_files="busy" in happened)
                proxy.release()  # what was answered long ago may still be applied
                assert world.require_ended(process_id, leaves_files="busy" in happened) is status
                assert status is ProcessStatus.SUCCESS or happened & {"meddled", "refused"}
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


def commit_with_faults(
    world: SteppedWorld,
    proxy: Proxy,
    chance: random.Random,
    process_id: str,
    meddle: Callable[[], object],
    check: Callable[[], object],
    *,
    fewest: int = 1,
    busy: float = 0.0,
    dies: float = 0.0,
) -> set[str]:
    """Commit until the process has ended; others meddle, and the coordinator may die or be restarted meanwhile.

    `fewest` of the first requests to commit, or more, are at the mercy of a random fault; `busy` and `dies` are how
    likely loads are refused and deaths come at each try. Returns what happened: "meddled", "busy", "refused".
    """
    script = [random_fault(chance) for _ in range(chance.randrange(fewest, 4))]
    happened = {"refused"} if any(fault is not None and fault.answer in _REFUSALS for fault in script) else set()
    print(f"process {process_id}:", *(str(fault) for fault in script), sep="\n  ")
    proxy.plan(*script)
    for tried in range(TRIES):
        if tried == FAULTY_TRIES:
            proxy.forget()
            proxy.release()
        if tried < FAULTY_TRIES and chance.random() < 0.3:
            happened.add("meddled")
            if chance.random() < 0.5:
                meddle()
            else:
                proxy.before_commit = meddle
        if tried < FAULTY_TRIES and chance.random() < busy:
            happened.add("busy")  # also while files are to be removed: they stay
            proxy.loads.extend([0] * chance.randrange(4) + [503])
        dies_at = chance.randrange(EFFECTS) if tried < FAULTY_TRIES and chance.random() < dies else -1
        try:
            with dying(world, lambda number, _, at=dies_at: number == at, after=chance.random() < 0.5):
                world.committing.commit(process_id)
        except CatalogUnavailable as error:
            print(f"  {error.message}")
        except Died as died:
            print(f"  died at {died}")
            world.restart()
        check()
        if not world.process(process_id).is_active:
            break
        if chance.random() < 0.3:
            world.restart()
            assert process_id in (*world.heard.commits, *world.heard.left_over)
    proxy.forget()
    return happened
