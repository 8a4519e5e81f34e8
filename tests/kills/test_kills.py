"""Kills with SIGKILL at every failpoint that there is, each by its name, and by chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from amoro_core import failpoints
from tests.kills import rounds
from tests.kills.nursery import Child, Nursery
from tests.kills.site import Site, required
from tests.kills.upkeep import UPKEEP
from tests.model.lake import ids_are, row

#: Those that a process passes that nobody disturbs.
ON_THE_WAY = (
    "plan.after_mark",
    "plan.before_store",
    "plan.after_store",
    "poll.after_store",
    "ack.after_store",
    "complete.before_store",
    "complete.after_store",
    "commit.before_intent",
    "commit.after_carried",
    "commit.after_stage",
    "commit.after_intent",
    "commit.after_send",
    "commit.after_done",
)
OF_OPTIMIZER = (
    "task.before_ack",
    "task.before_write",
    "task.after_file",
    "task.before_complete",
    "task.after_complete",
)
AFTER_A_CONFLICT = ("commit.after_failure", "clean.after_file")
OTHERS = ("commit.after_loss", "commit.before_resend", "cancel.after_store")
#: Of maintenance, and of what is brought back from a trash: `test_upkeep`. No shipped action removes files that it has
#: not condemned: `test_clearing` of tests/services dies where one would.
ELSEWHERE = (*UPKEEP, "clear.before_delete", "clear.after_delete", "trash.before_return", "trash.after_return")
#: Of plans that wait: `test_clustering_killed` of tests/services. Of work on optimizers: `test_large_upkeep`.
OF_LARGE_TABLES = (
    "start.before_store",
    "start.after_store",
    "gather.before_store",
    "gather.after_store",
    "ack.after_guard",
    "task.before_delete",
    "task.after_delete",
)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@pytest.fixture
def site(nursery: Nursery, quick_path: Path) -> Iterator[Site]:
    with required(Site(quick_path, nursery)) as made:
        yield made


def start(site: Site, armed: str = "", optimizer: str = "") -> None:
    site.start_coordinator(armed)
    site.wait(lambda: site.is_listening, "the coordinator listens")
    site.start_optimizer(optimizer)


def wait_for_death(site: Site, child: Child | None) -> None:
    assert child is not None
    site.wait(lambda: not child.is_alive, f"the {child.name} dies")


def test_every_failpoint_has_a_test_that_dies_there() -> None:
    covered = (ON_THE_WAY, OF_OPTIMIZER, AFTER_A_CONFLICT, OTHERS, ELSEWHERE, OF_LARGE_TABLES)
    assert {name for names in covered for name in names} == failpoints.NAMES


@pytest.mark.parametrize("name", ON_THE_WAY)
def test_what_a_coordinator_began_that_died_on_the_way_is_brought_to_its_end(site: Site, name: str) -> None:
    start(site, f"{name}=kill")
    site.optimize()
    wait_for_death(site, site.coordinator)
    planned = name not in ("plan.after_mark", "plan.before_store")
    assert len(site.processes()) == planned
    site.start_coordinator()
    site.wait(lambda: not site.is_busy, "the process ends")
    assert [status for status, _ in site.processes().values()] == ["success"] * planned


@pytest.mark.parametrize("name", OF_OPTIMIZER)
def test_what_an_optimizer_began_that_died_is_finished_by_the_next(site: Site, name: str) -> None:
    start(site, optimizer=f"{name}=kill")
    assert site.optimize()
    wait_for_death(site, site.optimizer)
    site.start_optimizer()
    site.wait(lambda: not site.is_busy, "the process ends")
    assert list(site.processes().values()) == [("success", "")]


@pytest.mark.parametrize("name", AFTER_A_CONFLICT)
def test_a_commit_that_conflicted_stays_so_when_its_coordinator_dies(site: Site, tmp_path: Path, name: str) -> None:
    held = tmp_path / "held"
    start(site, f"{name}=kill", f"task.before_write=hold:{held}")
    assert site.optimize()
    site.wait(held.exists, "the optimizer works")
    site.lake.overwrite(ids_are(*range(8)), {"value": "over"})  # all inputs are gone
    held.unlink()
    wait_for_death(site, site.coordinator)
    assert [status for status, _ in site.processes().values()] == ["failed"]


def test_an_attempt_that_lost_is_cleaned_and_made_anew_when_its_coordinator_dies(site: Site, tmp_path: Path) -> None:
    held = tmp_path / "held"
    start(site, f"commit.after_intent=hold:{held},commit.after_loss=kill")
    assert site.optimize()
    site.wait(held.exists, "the commit is staged")
    site.lake.append([row(20, "a")])
    held.unlink()
    wait_for_death(site, site.coordinator)
    site.start_coordinator()
    site.wait(lambda: not site.is_busy, "the process ends")
    assert list(site.processes().values()) == [("success", "")]


def test_an_attempt_is_sent_again_by_the_third_coordinator_when_the_second_died_over_it(site: Site) -> None:
    start(site, "commit.after_intent=kill")
    assert site.optimize()
    wait_for_death(site, site.coordinator)
    site.start_coordinator("commit.before_resend=kill")
    wait_for_death(site, site.coordinator)
    site.start_coordinator()
    site.wait(lambda: not site.is_busy, "the process ends")
    assert list(site.processes().values()) == [("success", "")]


def test_a_process_stays_cancelled_when_the_coordinator_dies_over_it(site: Site, tmp_path: Path) -> None:
    held = tmp_path / "held"
    start(site, "cancel.after_store=kill", f"task.before_write=hold:{held}")
    assert site.optimize()
    site.wait(held.exists, "the optimizer works")
    (process_id,) = site.processes()
    site.ask(lambda client: client.cancel_process(process_id))
    wait_for_death(site, site.coordinator)
    held.unlink()
    assert [status for status, _ in site.processes().values()] == ["closed"]


def test_rounds_of_random_kills_keep_every_row(tmp_path: Path) -> None:
    """`make prove` goes on with other seeds."""
    seed = random.randrange(2**32)
    print(f"replay with python -m tests.prove --replay kills:{seed}")
    totals: Counter[str] = Counter()
    rounds.run(seed, 6, tmp_path, totals)
    print(dict(totals))
    assert totals["kills"] >= 6
