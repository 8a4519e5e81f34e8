"""Which kind of batch is next."""

from __future__ import annotations

from collections.abc import Mapping

from tests.prove.kinds import Kind
from tests.prove.proof import Proof


def choose(proof: Proof, kinds: Mapping[str, Kind], left_s: float) -> str | None:
    """The kind that has had the least time, of those that have not reached their targets first; None if none fits."""
    fitting = [name for name, kind in kinds.items() if usual_seconds(proof, kind) <= left_s]
    return min(fitting, key=lambda name: (has_reached(proof, kinds[name]), proof.seconds(name)), default=None)


def has_reached(proof: Proof, kind: Kind) -> bool:
    totals = proof.totals(kind.NAME)
    return all(totals[what] >= target for what, target in kind.TARGETS.items())


def usual_seconds(proof: Proof, kind: Kind) -> float:
    """What a batch has taken on average; what the kind says before there was one."""
    batches = proof.batches(kind.NAME)
    return proof.seconds(kind.NAME) / batches if batches else kind.SECONDS
