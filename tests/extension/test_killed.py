"""Real processes with the extension installed, killed with SIGKILL at every failpoint that its processes pass."""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.processes import WITHOUT_PAGES, wait_until
from tests.extension.conftest import LARGE, SMALL, install, make_journal
from tests.extension.journal import JournalTable
from tests.kills.nursery import Child, Nursery
from tests.kills.site import ask, release_all
from tests.tiers import sample

#: Where the coordinator alone does it, and where optimizers do.
IN_THE_COORDINATOR = ("commit.after_send", "plan.after_store", "commit.after_intent")
WITH_TASKS = (
    "task.before_complete",
    "plan.after_mark",
    "plan.before_store",
    "plan.after_store",
    "poll.after_store",
    "task.before_ack",
    "ack.after_store",
    "complete.before_store",
    "complete.after_store",
    "task.after_complete",
    "commit.after_intent",
    "commit.after_send",
    "commit.after_done",
)


class Place:
    """A state directory beside a lake with one journal."""

    def __init__(self, directory: Path, nursery: Nursery) -> None:
        self._directory, self._nursery = directory, nursery
        lake = directory / "lake"
        self.journal = make_journal(lake / "db" / "log")
        install(directory / "site")
        (directory / "home").mkdir(mode=0o700)
        (directory / "home" / "amoro.yaml").write_text("heartbeat-timeout: 60s\n", encoding="utf-8")
        (directory / ".pyiceberg.yaml").write_text(
            f"catalog:\n  lake:\n    table-formats: journal\n    warehouse: {lake}\n", encoding="utf-8"
        )

    def start(self, armed: str = "") -> Child:
        """A coordinator with an optimizer in its process."""
        own = {
            "HOME": str(self._directory),
            "PYICEBERG_HOME": str(self._directory),
            "PYTHONPATH": str(self._directory / "site"),
        }
        environment = {**own, **WITHOUT_PAGES, "AMORO_HOME": str(self._directory / "home"), "PATH": os.environ["PATH"]}
        log = self._directory / f"{uuid.uuid4()}.log"
        return self._nursery.start(("up", "--port", "0"), environment, armed, log)

    def release_optimizers(self) -> bool:
        """Tell the coordinator, once it answers, that the optimizers are gone; its own registers again."""
        return ask(self._directory / "home", release_all) is not None

    def tallies(self) -> list[dict[str, int]]:
        return [record["tally"] for record in self.journal.now().records if "tally" in record]

    def statuses(self) -> list[str]:
        with closing(sqlite3.connect(f"file:{self._directory / 'home' / 'amoro.db'}?mode=ro", uri=True)) as database:
            return [status for (status,) in database.execute("SELECT status FROM table_process")]


def add(journal: JournalTable, **files: str) -> None:
    for name, content in files.items():
        (journal.place / name).write_text(content)
    journal.send(journal.now().stage({"files": list(files)})[0])


@pytest.mark.parametrize(
    ("point", "content"),
    [
        *((point, SMALL) for point in sample(IN_THE_COORDINATOR, every=len(IN_THE_COORDINATOR))),
        *((point, LARGE) for point in sample(WITH_TASKS, every=len(WITH_TASKS))),
    ],
    ids=lambda given: given if "." in given else "task" if given == LARGE else "coordinator",
)
def test_whoever_is_killed_every_file_is_counted_once(
    nursery: Nursery, tmp_path: Path, point: str, content: str
) -> None:
    place = Place(tmp_path, nursery)
    add(place.journal, a=content, b=content)
    killed = place.start(f"{point}=kill")
    wait_until(lambda: not killed.is_alive, f"death at {point}")
    again = place.start()
    try:
        wait_until(place.release_optimizers, "the optimizers are released")
        wait_until(lambda: "success" in place.statuses(), "the process ends")
    finally:
        again.kill()
    lines = content.count("\n")
    assert place.tallies() == [{"a": lines, "b": lines}]
    assert place.statuses() == ["success"]
