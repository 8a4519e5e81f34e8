"""Rewriting as a kind of work: its messages from values and back."""

from __future__ import annotations

from typing import TypeVar

from amoro_core.model.task_payload import REWRITE, RewriteInput, RewriteOutput, Work, WorkResult
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb

T = TypeVar("T")


def rewrite_work(work: RewriteInput) -> Work:
    return Work(REWRITE, codec.encode(pb.RewriteInput, work).SerializeToString(deterministic=True))


def rewrite_input(work: Work) -> RewriteInput:
    assert work.kind == REWRITE
    return codec.decode_input(pb.RewriteInput.FromString(work.payload))


def rewrite_output(result: WorkResult) -> RewriteOutput:
    assert result.kind == REWRITE
    return codec.decode(RewriteOutput, pb.RewriteOutput.FromString(result.payload))


def as_result(outcome: RewriteOutput | T) -> WorkResult | T:
    """What an optimizer reports: an output as the result of its kind, anything else as it is."""
    if not isinstance(outcome, RewriteOutput):
        return outcome
    return WorkResult(REWRITE, codec.encode(pb.RewriteOutput, outcome).SerializeToString(deterministic=True))
