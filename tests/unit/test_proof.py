"""The accounting of `make prove`: what was counted is never lost, doubled or forgotten."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.prove import __main__ as proving
from tests.prove.choosing import choose
from tests.prove.kinds import KINDS, Kind
from tests.prove.page import render
from tests.prove.proof import Mismatch, Proof, Run, load, save

BATCH = Run("a", "c1", "v", 1, 10.0, {"things": 3, "upsert × before commit": 2})


@dataclass(frozen=True)
class OfTests:
    """A kind whose seed 2 fails after it has counted."""

    NAME: str = "a"
    SECONDS: float = 0.001
    WHAT: str = "Things."
    REPLAYS: bool = True

    @property
    def TARGETS(self) -> Mapping[str, int]:
        return {"things": 5}

    def run(self, seed: int, totals: Counter[str]) -> None:
        totals["things"] += 1
        assert seed != 2, "two | is too\nmany"


def test_batches_of_one_code_are_summed_and_of_another_kept_apart() -> None:
    proof = Proof().with_batch(BATCH, 0).with_batch(BATCH, 1)
    other = Run("a", "c2", "v", 1, 5.0, {"things": 1})
    proof = proof.with_batch(other, 2)
    assert proof.runs == (Run("a", "c1", "v", 2, 20.0, {"things": 6, "upsert × before commit": 4}), other)
    assert proof.totals("a") == {"things": 7, "upsert × before commit": 4}
    assert (proof.next_seed("a"), proof.next_seed("b")) == (3, 0)
    assert (proof.batches("a"), proof.seconds("a")) == (3, 25.0)


def test_an_earlier_seed_does_not_set_the_next_one_back() -> None:
    assert Proof().with_batch(BATCH, 7).with_batch(BATCH, 2).next_seed("a") == 8


def test_a_mismatch_stays_listed_when_it_is_mended() -> None:
    proof = Proof().with_batch(BATCH, 4, "it broke")
    assert proof.open == (Mismatch("a", 4, "c1", "it broke"),)
    mended = proof.mended("a", 4, "c9")
    assert (mended.open, mended.mismatches) == ((), (Mismatch("a", 4, "c1", "it broke", "c9"),))
    assert mended.totals("a") == proof.totals("a")
    with pytest.raises(KeyError):
        mended.mended("a", 4, "c10")


def test_what_is_saved_is_loaded_again(tmp_path: Path) -> None:
    proof = Proof().with_batch(BATCH, 0).with_batch(BATCH, 1, "it broke")
    save(proof, tmp_path / "proof.json")
    assert load(tmp_path / "proof.json") == proof
    assert [path.name for path in tmp_path.iterdir()] == ["proof.json"]
    assert load(tmp_path / "none.json") == Proof()


def test_the_kind_with_the_least_time_is_next_and_those_below_their_targets_come_first() -> None:
    kinds: dict[str, Kind] = {"a": OfTests(), "b": OfTests("b")}
    proof = Proof().with_batch(Run("b", "c", "v", 1, 3.0, {"things": 1}), 0)
    assert choose(proof, kinds, 60.0) == "a"
    proof = proof.with_batch(Run("a", "c", "v", 1, 4.0, {"things": 1}), 0)
    assert choose(proof, kinds, 60.0) == "b"
    proof = proof.with_batch(Run("b", "c", "v", 1, 0.5, {"things": 4}), 1)
    assert choose(proof, kinds, 60.0) == "a"
    proof = proof.with_batch(Run("a", "c", "v", 1, 0.5, {"things": 4}), 1)
    assert choose(proof, kinds, 60.0) == "b"


def test_a_batch_that_does_not_fit_is_not_begun() -> None:
    proof = Proof().with_batch(Run("a", "c", "v", 2, 20.0, {}), 0)
    assert choose(proof, {"a": OfTests()}, 10.0) == "a"
    assert choose(proof, {"a": OfTests()}, 9.9) is None
    assert choose(Proof(), {"a": OfTests("a", 30.0)}, 29.0) is None


def test_the_page_has_totals_pairs_and_each_mismatch_with_its_command() -> None:
    proof = Proof().with_batch(BATCH, 0).with_batch(BATCH, 1, "two | is too\nmany").with_batch(BATCH, 2, "x")
    page = render(proof.mended("a", 2, "c9"), {"a": OfTests()})
    assert "| a | things: 9 | 5 ✓ | 18.0 | 2 |" in page
    assert "- `python -m tests.prove --replay a:1` at `c1`: two / is too many — **open**" in page
    assert "- `python -m tests.prove --replay a:2` at `c1`: x — **c9**" in page
    assert "1 pairs met, 6 times." in page
    assert "| upsert | 6 |" in page
    assert "None." in render(Proof(), {"a": OfTests()})


def test_the_page_in_docs_is_what_its_figures_say() -> None:
    assert proving.PAGE.read_text(encoding="utf-8") == render(load(proving.STATE), KINDS)


def test_every_kind_has_a_sentence_and_a_target() -> None:
    assert [name for name, kind in KINDS.items() if not (kind.WHAT and kind.TARGETS and name == kind.NAME)] == []


@pytest.fixture
def proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runner with one kind of its own, whose batches run in this process; returns where its figures go."""
    kinds: dict[str, Kind] = {"a": OfTests()}

    def batch(kind: str, seed: int) -> tuple[dict[str, int], str]:
        totals: Counter[str] = Counter()
        try:
            kinds[kind].run(seed, totals)
        except AssertionError as error:
            return dict(totals), str(error)
        if seed == 4:
            raise KeyboardInterrupt
        return dict(totals), ""

    monkeypatch.setattr(proving, "KINDS", kinds)
    monkeypatch.setattr(proving, "ROOT", tmp_path)
    monkeypatch.setattr(proving, "STATE", tmp_path / "proof.json")
    monkeypatch.setattr(proving, "PAGE", tmp_path / "proof.md")
    monkeypatch.setattr(proving, "batch", batch)
    return tmp_path / "proof.json"


def test_a_run_that_is_ended_loses_only_its_batch_and_a_mismatch_does_not_stop_it(proved: Path) -> None:
    assert proving.main(["--budget", "1h"]) == 130
    proof = load(proved)
    assert (proof.totals("a"), proof.next_seed("a"), proof.batches("a")) == ({"things": 4}, 4, 4)
    assert [(one.kind, one.seed) for one in proof.open] == [("a", 2)]
    assert proved.with_suffix(".md").read_text(encoding="utf-8").count("--replay a:2") == 1


def test_an_open_mismatch_makes_the_status_1_until_its_seed_runs_well(
    proved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(Proof().with_batch(BATCH, 2, "it broke").with_batch(BATCH, 1, "by another"), proved)
    assert proving.main(["--budget", "1ms"]) == 1
    assert proving.main(["--mended", "a:1", "--by", "c9"]) == 0
    assert proving.main(["--mended", "a:2", "--by", "c9"]) == 1
    assert [one.seed for one in load(proved).open] == [2]
    monkeypatch.setattr(proving, "batch", lambda kind, seed: ({}, ""))
    assert proving.main(["--mended", "a:2", "--by", "c9"]) == 0
    assert proving.main(["--mended", "a:2", "--by", "c9"]) == 2
    assert proving.main(["--budget", "1ms"]) == 0


def test_a_batch_without_a_result_is_a_mismatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "LOGS", tmp_path)
    monkeypatch.setattr(proving, "KINDS", {"none": OfTests()})
    assert proving.batch("none", 1) == ({}, "the batch's process ended with 1 before it had a result")
    assert "KeyError: 'none'" in (tmp_path / "none-1.log").read_text()


def test_a_batch_that_fails_has_counted_and_says_why(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.prove import batch; from tests.unit.test_proof import OfTests;"
        "batch.KINDS = {'a': OfTests()}; sys.exit(batch.main('a', '2', sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "result")],
        cwd=proving.PAGE.parents[1],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "result").read_text())
    assert found["totals"] == {"things": 1}
    assert found["mismatch"].startswith("AssertionError: two | is too")
    assert "Traceback" in done.stderr
