"""Kills with SIGKILL at every failpoint that there is, each by its name, and by chance.

`make test` has one failpoint of each phase, `make prove` goes on with other seeds of the random rounds.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from amoro_core import failpoints
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.journal_pb2 import Listener, ListListenersRequest, ResumeListenerRequest
from tests.kills import catalog_writers, upkeep
from tests.kills.nursery import Child, Nursery
from tests.kills.site import PROPERTIES, Site, required, run_rounds
from tests.kills.upkeep import UpkeepSite
from tests.listening import SECRET, receiving
from tests.model.lake import ids_are, row
from tests.tiers import count, sample, seeds

OTHERS = ("commit.after_loss", "commit.before_resend", "cancel.after_store")
#: Of maintenance whose work is done by optimizers: who dies, and in which action.
OF_LARGE_TABLES = {
    "task.after_delete": ("optimizer", "empty-trash"),
    "task.before_delete": ("optimizer", "empty-trash"),
    "ack.after_guard": ("coordinator", "empty-trash"),
    "gather.before_store": ("coordinator", "clean-orphan-files"),
    "gather.after_store": ("coordinator", "clean-orphan-files"),
}
#: No shipped action removes files that it has not condemned: `test_expiring` of tests/services dies where one would.
#: Of plans that wait: `test_clustering` of tests/services.
ELSEWHERE = ("clear.before_delete", "clear.after_delete", "start.before_store", "start.after_store")
Phases = tuple[tuple[str, ...], ...]


def points(first: str, but: Collection[str] = ()) -> tuple[str, ...]:
    """The failpoints whose names begin as that one's, which is the first."""
    prefix, not_again = f"{first.partition('.')[0]}.", {first, *but}
    return (first, *sorted(name for name in failpoints.NAMES - not_again if name.startswith(prefix)))


AFTER_A_CONFLICT: Phases = (("commit.after_failure", "clean.after_file"),)
#: Those that a process passes that nobody disturbs: planning, handing out, reporting, committing.
ON_THE_WAY: Phases = (
    points("plan.before_store"),
    ("poll.after_store", "ack.after_store"),
    points("complete.after_store"),
    points("commit.after_send", (*OTHERS, *AFTER_A_CONFLICT[0])),
)
OF_OPTIMIZER: Phases = (points("task.after_file", OF_LARGE_TABLES),)
#: Of maintenance in the coordinator: condemning and deleting.
WHILE_SWEEPING: Phases = (points("clear.after_condemning", ELSEWHERE), points("sweep.after_batch"))
#: Of instances that are started on demand.
WITH_INSTANCES: Phases = (points("instance.after_start"),)
RETURNING: Phases = (points("trash.after_return"),)


def one_of_each(phases: Phases) -> list[str]:
    """The first failpoint of each phase; all in `make test-all`."""
    return [name for names in phases for name in sample(names, every=len(names))]


@pytest.fixture
def site(nursery: Nursery, quick_path: Path) -> Iterator[Site]:
    with required(Site(quick_path, nursery)) as made:
        yield made


@pytest.fixture
def upkept(nursery: Nursery, quick_path: Path) -> Iterator[UpkeepSite]:
    with required(UpkeepSite(quick_path, nursery)) as made:
        yield made


@pytest.fixture
def large(nursery: Nursery, quick_path: Path) -> Iterator[UpkeepSite]:
    with required(UpkeepSite(quick_path, nursery, with_tasks=True)) as made:
        start(made)
        yield made


def start(site: Site, armed: str = "", optimizer: str = "") -> None:
    site.start_coordinator(armed)
    site.wait(lambda: site.is_listening, "the coordinator listens")
    site.start_optimizer(optimizer)


def wait_for_death(site: Site, child: Child | None) -> None:
    assert child is not None
    site.wait(lambda: not child.is_alive, f"the {child.name} dies")


def test_every_failpoint_has_a_test_that_dies_there() -> None:
    by_phase = (ON_THE_WAY, OF_OPTIMIZER, AFTER_A_CONFLICT, WHILE_SWEEPING, RETURNING, WITH_INSTANCES)
    covered = {name for phases in by_phase for names in phases for name in names}
    assert {*covered, *OTHERS, *OF_LARGE_TABLES, *ELSEWHERE} == failpoints.NAMES


@pytest.mark.parametrize("name", one_of_each(ON_THE_WAY))
def test_what_a_coordinator_began_that_died_on_the_way_is_brought_to_its_end(site: Site, name: str) -> None:
    start(site, f"{name}=kill")
    site.optimize()
    wait_for_death(site, site.coordinator)
    planned = name not in ("plan.after_mark", "plan.before_store")
    assert len(site.processes()) == planned
    site.start_coordinator()
    site.wait(lambda: not site.is_busy, "the process ends")
    assert [status for status, _ in site.processes().values()] == ["success"] * planned


@pytest.mark.parametrize("name", one_of_each(OF_OPTIMIZER))
def test_what_an_optimizer_began_that_died_is_finished_by_the_next(site: Site, name: str) -> None:
    start(site, optimizer=f"{name}=kill")
    assert site.optimize()
    wait_for_death(site, site.optimizer)
    site.release_optimizers()
    site.start_optimizer()
    site.wait(lambda: not site.is_busy, "the process ends")
    assert list(site.processes().values()) == [("success", "")]


@pytest.mark.parametrize("name", one_of_each(AFTER_A_CONFLICT))
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
    site.ask(lambda client: client.CancelProcess(pb.CancelProcessRequest(process_id=process_id)))
    wait_for_death(site, site.coordinator)
    held.unlink()
    assert [status for status, _ in site.processes().values()] == ["closed"]


def instances(site: Site) -> list[psutil.Process]:
    """The optimizers that its coordinators have started and that run."""
    token = f"--token-file={site.home}/enrolment.token"
    return [one for one in psutil.process_iter(["cmdline"]) if token in (one.info["cmdline"] or ())]


@pytest.fixture
def staffed(nursery: Nursery, quick_path: Path) -> Iterator[Site]:
    """Its coordinator starts optimizers itself."""
    made = Site(quick_path, nursery, {**PROPERTIES, "self-optimizing.group": "workers"})
    try:
        with required(made):
            made.start_coordinator()
            made.wait(lambda: made.is_listening, "the coordinator listens")
            on_demand = {"max-instances": "2", "idle-timeout": "2s", "threads": "1"}
            request = pb.CreateGroupRequest(name="workers", container="local", properties=on_demand)
            assert made.ask(lambda client: client.CreateGroup(request)) is not None
            yield made
    finally:
        for one in instances(made):
            with suppress(psutil.NoSuchProcess):
                one.kill()


@pytest.mark.parametrize("name", one_of_each(WITH_INSTANCES))
def test_a_coordinator_that_dies_over_its_instances_never_has_too_many(staffed: Site, name: str) -> None:
    site, counts = staffed, [0]

    def counted() -> int:
        counts.append(len(instances(site)))
        return counts[-1]

    assert counted() == 0
    site.start_coordinator(f"{name}=kill")
    site.wait(lambda: site.is_listening, "the coordinator listens")
    site.optimize()  # two tasks of one thread each
    child = site.coordinator
    assert child is not None
    site.wait(lambda: counted() <= 2 and not child.is_alive, f"the coordinator dies at {name}")
    site.start_coordinator()
    site.wait(lambda: counted() <= 2 and not site.is_busy, "the process ends")
    site.wait(lambda: counted() == 0, "nothing runs without work")
    assert list(site.processes().values()) == [("success", "")]
    assert 1 <= max(counts) <= 2


@pytest.mark.parametrize("name", one_of_each(WHILE_SWEEPING))
def test_what_died_while_it_condemned_or_deleted_goes_on_and_loses_nothing(upkept: UpkeepSite, name: str) -> None:
    site = upkept
    site.keep("0", trash=name.endswith("_move"))
    for number in range(3):
        site.lake.overwrite(lambda item: item["id"] == 1, {"value": f"v{number}"})
        site.look()
    site.start_coordinator(f"{name}=kill")
    site.wait(lambda: site.is_listening, "the coordinator listens")
    child = site.coordinator
    assert child is not None
    site.wait(lambda: site.maintain("expire-snapshots") is not None or not child.is_alive, "the expiry is planned")
    site.wait(lambda: not child.is_alive or not site.is_busy, "the expiry ends")
    if child.is_alive:
        site.maintain("empty-trash")
    wait_for_death(site, child)
    site.lake.append([row(30, "a")])
    site.look()


@pytest.mark.parametrize("name", one_of_each(RETURNING))
def test_what_died_while_it_brought_files_back_from_the_trash_goes_on_and_loses_none(
    upkept: UpkeepSite, name: str
) -> None:
    site = upkept
    site.keep("1h", trash=True)
    with site.lake.table.refresh().transaction() as change:
        change.set_properties({"table-trash.keep.days": "1"})
    strays = site.plant(2)
    site.start_coordinator()
    site.wait(lambda: site.is_listening, "the coordinator listens")
    site.maintain_whole("clean-orphan-files")
    (condemning,) = site.condemning()
    site.empty_trash()
    assert not any(path.exists() for path in strays)
    for _ in strays:
        site.start_coordinator(f"{name}=kill")
        site.wait(lambda: site.is_listening, "the coordinator listens")
        assert site.ask(lambda client: client.RestoreTrash(pb.RestoreTrashRequest(process_id=condemning))) is None
        wait_for_death(site, site.coordinator)
        site.look()
    site.start_coordinator()
    site.wait(
        lambda: site.ask(lambda client: client.RestoreTrash(pb.RestoreTrashRequest(process_id=condemning))) is not None,
        "all are brought back",
    )
    assert [path.read_bytes() for path in strays] == [b"nobody names it"] * 2


@pytest.mark.parametrize("point", sample(list(OF_LARGE_TABLES), every=len(OF_LARGE_TABLES)))
def test_what_lists_and_deletes_for_a_large_table_may_die_at_any_place(large: UpkeepSite, point: str) -> None:
    site, (who, action) = large, OF_LARGE_TABLES[point]
    site.lake.append([row(40, "a")])
    site.look()
    strays = site.plant(2)
    if action == "empty-trash":
        site.maintain_whole("clean-orphan-files")
        site.wait(lambda: site.hurry() is not None, "what is condemned is due")
    begin = site.start_coordinator if who == "coordinator" else site.start_optimizer
    begin(f"{point}=kill")
    child = site.coordinator if who == "coordinator" else site.optimizer
    assert child is not None
    site.wait(lambda: site.is_listening, "the coordinator listens")
    if who == "optimizer":
        site.release_optimizers()  # also the one that was killed for it; the new one registers again
    site.wait(lambda: site.maintain(action) is not None or not child.is_alive, f"{action} is planned")
    wait_for_death(site, child)
    site.look()
    if who == "optimizer":
        site.release_optimizers()
    begin()
    site.wait(lambda: not site.is_busy, f"{action} ends")
    site.empty_trash()
    assert not any(path.exists() for path in strays)
    site.look()


def test_a_listener_gets_every_event_in_order_however_often_its_coordinator_dies_beside_a_listener_that_hangs(
    site: Site, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    with receiving() as receiver, socket.create_server(("127.0.0.1", 0)) as silent:
        rest = f"secret: 'file:{secret}', allow-private: true"
        site.set(f"listeners:\n- {{name: hooks, url: '{receiver.url}', {rest}}}\n")
        site.set(f"- {{name: silent, url: 'http://127.0.0.1:{silent.getsockname()[1]}/', {rest}}}\n")
        start(site)
        for number in range(count(3, 20)):
            receiver.status = 500 if number % 4 == 1 else 204
            known = receiver.asked
            site.wait(site.optimize, "a process is planned")
            receiver.wait_for_more(known)
            site.start_coordinator()  # the one before is killed
            site.wait(lambda: not site.is_busy, "the process ends")
        receiver.status = 204
        stored = sorted(site.events())
        site.wait(lambda: stored[-1] in receiver.ids, "all was sent")
        first = [one for one in dict.fromkeys(receiver.ids) if one <= stored[-1]]  # some may have come twice
        assert first == [one for one in stored if one >= first[0]]
        assert set(site.events().values()) == {"", "cat.db.t"}
        site.wait(lambda: site.is_listening, "the coordinator listens")

        def listeners() -> Sequence[Listener]:
            return site.ask(lambda client: client.ListListeners(ListListenersRequest())).listeners

        site.wait(lambda: listeners()[0].state == "ok", "what was sent is stored")
        hooks, silent_one = listeners()
        assert (hooks.name, silent_one.pending_ms > 0) == ("hooks", True)
        resumed = site.ask(lambda client: client.ResumeListener(ResumeListenerRequest(name="silent")))
        assert (resumed.name, resumed.state) == ("silent", "ok")
        assert {status for status, _ in site.processes().values()} == {"success"}


@pytest.mark.parametrize("seed", seeds(1, 1))
def test_rounds_of_random_kills_keep_every_row(tmp_path: Path, seed: int) -> None:
    totals: Counter[str] = Counter()
    run_rounds(seed, 6, tmp_path, totals)
    print(dict(totals))
    assert totals["kills"] >= 6


@pytest.mark.parametrize("seed", seeds(1, 1))
def test_rounds_of_random_kills_of_maintenance_lose_nothing(tmp_path: Path, seed: int) -> None:
    totals: Counter[str] = Counter()
    upkeep.run(seed, 4, tmp_path, totals)
    print(dict(totals))
    assert totals["kills"] >= 4


@pytest.mark.parametrize("seed", seeds(1, 1))
def test_each_commit_to_a_catalog_of_our_own_that_was_acknowledged_is_there_once_whatever_was_cut_and_killed(
    tmp_path: Path, seed: int
) -> None:
    totals: Counter[str] = Counter()
    catalog_writers.run(seed, 4, tmp_path, totals)
    print(dict(totals))
    assert totals["snapshots acknowledged"] > 16
