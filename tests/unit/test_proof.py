"""The accounting of `make prove`: what was counted is never lost, doubled or forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.proof import Kind, Mismatch, Proof, Run, load, render, save

BATCH = Run("a", "c1", "v", 1, 10.0, {"things": 3, "upsert × before commit": 2})
OTHER = Run("a", "c2", "v", 1, 5.0, {"things": 1})
KINDS = {"a": Kind({"things": 5}, 1.0, lambda seed, totals: None, "Things.", replays=True)}


def test_batches_are_summed_by_code_and_mismatches_stay_listed(tmp_path: Path) -> None:
    proof = Proof().with_batch(BATCH, 7, "two | is too\nmany").with_batch(BATCH, 2, "it broke").with_batch(OTHER, 8)
    save(proof, tmp_path / "proof.json")
    assert load(tmp_path / "proof.json") == proof
    assert proof.runs == (Run("a", "c1", "v", 2, 20.0, {"things": 6, "upsert × before commit": 4}), OTHER)
    # An earlier seed does not set the next one back.
    assert [Proof().next_seed("a"), proof.with_batch(OTHER, 3).next_seed("a"), proof.next_seed("b")] == [0, 9, 0]
    mended = proof.mended("a", 2, "c9")
    assert mended.open == (Mismatch("a", 7, "c1", "two | is too\nmany"),)
    assert mended.mismatches == (*mended.open, Mismatch("a", 2, "c1", "it broke", "c9"))
    with pytest.raises(KeyError):
        mended.mended("a", 2, "c10")
    page = render(mended, KINDS)
    for line in (
        "| a | things: 7 | 5 ✓ | 16.8 | 2 |",
        "- `python -m tests.prove --replay a:7` at `c1`: two / is too many — **open**",
        "- `python -m tests.prove --replay a:2` at `c1`: it broke — **c9**",
        "1 pairs covered, 4 times.",
        "| upsert | 4 |",
    ):
        assert f"{line}\n" in page
