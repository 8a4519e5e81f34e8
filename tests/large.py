"""Tables that count as large, and an optimizer for the work that is planned for them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from amoro_core.actions import orphans
from amoro_core.errors import AmoroError
from amoro_core.maintenance import manifests
from amoro_core.model.processes import OptimizingProcess
from amoro_core.model.task_payload import WorkResult
from amoro_core.services.task_lifecycle import Failure, ScheduledTask
from amoro_optimizer.execution import Backend
from amoro_optimizer.work_kinds import BlobName, Kinds, Run
from tests.services.world import World


def count_as_large(monkeypatch: pytest.MonkeyPatch, files_of_a_task: int = 1) -> None:
    """Every table is large from now on, and has a task for each so many files."""
    monkeypatch.setattr(manifests, "LARGE", -1)
    monkeypatch.setattr(orphans, "FILES_OF_A_LIST_TASK", files_of_a_task)


@dataclass
class Worker:
    """An optimizer that knows all kinds of work, without threads."""

    world: World
    kinds: Kinds = field(default_factory=Kinds)
    optimizer: str = ""
    age_s: float = 0.0  # of every ack
    begun: str = ""  # the process that a test is about
    backend: Backend | None = None  # where work is done; None: here

    def __post_init__(self) -> None:
        self.optimizer = self.world.optimizer(kinds=self.kinds.names)

    def poll(self, *threads: int) -> list[ScheduledTask]:
        return self.world.poll(self.optimizer, *threads)

    def ack(self, handed: ScheduledTask) -> bool:
        return self.world.optimizing.ack(self.optimizer, [handed.attempt]) != [None]

    def execute(self, handed: ScheduledTask) -> WorkResult:
        def fetch(name: BlobName) -> bytes:
            content, piece = b"", 0
            while name.size_bytes and (
                found := self.world.optimizing.read_blob(self.optimizer, handed.attempt, name.sha256, piece)
            ):
                content, piece = content + found, piece + 1
            return content

        run = Run(handed.attempt, {}, 1 << 28, lambda done, total: None, lambda: False, fetch, lambda: self.age_s)
        if self.backend is not None:
            return self.backend.execute(handed.work, str(handed.table), run)
        return self.kinds.execute(handed.work, run)

    def complete(self, handed: ScheduledTask, result: WorkResult | Failure) -> bool:
        return self.world.optimizing.complete(self.optimizer, handed.attempt, result)

    def work(self) -> int:
        """Everything that is planned; how many attempts."""
        done = 0
        while handed := self.poll():
            done += 1
            assert self.ack(handed[0])
            try:
                result: WorkResult | Failure = self.execute(handed[0])
            except AmoroError as error:
                result = Failure(error.code, error.message)
            self.complete(handed[0], result)
        return done

    def run(self, action: str, **more: object) -> OptimizingProcess:
        """A process of the action on the table, as if somebody asked for it, its tasks done here, to its end."""
        table_id = self.world.table().table_id
        begun = self.world.maintaining.begin(table_id, action, trigger="request", **more)
        assert begun.process_id, begun.reason
        self.work()
        self.world.committing.commit(begun.process_id)
        return self.world.optimizing.find_process(begun.process_id).process
