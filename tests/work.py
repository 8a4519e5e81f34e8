"""Rewriting as a kind of work: its messages from values and back, and a backend that is asked in values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from amoro_core.model.processes import Attempt
from amoro_core.model.task_payload import REWRITE, RewriteInput, RewriteOutput, Work, WorkResult
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb
from amoro_optimizer.execution import Backend
from amoro_optimizer.work_kinds import Run

T = TypeVar("T")
Rewrite = Callable[
    [RewriteInput, Mapping[str, str], Attempt, Callable[[int, int], None], Callable[[], bool]], RewriteOutput
]


def rewrite_work(work: RewriteInput) -> Work:
    return Work(REWRITE, codec.encode(pb.RewriteInput, work).SerializeToString(deterministic=True))


def rewrite_input(work: Work) -> RewriteInput:
    assert work.kind == REWRITE
    return codec.decode_input(pb.RewriteInput.FromString(work.payload))


def rewrite_result(output: RewriteOutput) -> WorkResult:
    return WorkResult(REWRITE, codec.encode(pb.RewriteOutput, output).SerializeToString(deterministic=True))


def rewrite_output(result: WorkResult) -> RewriteOutput:
    assert result.kind == REWRITE
    return codec.decode(RewriteOutput, pb.RewriteOutput.FromString(result.payload))


def as_result(outcome: RewriteOutput | T) -> WorkResult | T:
    """What an optimizer reports: an output as the result of its kind, anything else as it is."""
    return rewrite_result(outcome) if isinstance(outcome, RewriteOutput) else outcome


def rewriting(backend: Backend, memory_bytes: int = 1 << 28) -> Rewrite:
    """The backend's rewriting: input, vended properties, attempt, progress, cancellation."""

    def rewrite(
        work: RewriteInput,
        io_properties: Mapping[str, str],
        attempt: Attempt,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
    ) -> RewriteOutput:
        run = Run(attempt, io_properties, memory_bytes, on_progress, is_cancelled)
        return rewrite_output(backend.execute(rewrite_work(work), work.table.table, run))

    return rewrite
