"""What was proved so far: totals by kind and commit, the next seeds, and every mismatch ever seen."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

Batch = Callable[[int, "Counter[str]"], None]
CROSS = " × "


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of batch, each of which is one seed."""

    targets: Mapping[str, int]  # totals to be reached; kinds that have not reached theirs run first
    seconds: float  # that a batch takes, about; it is ended as hanging after ten times that (five minutes at least)
    run: Batch  # adds to the totals, prints what helps to understand a failure, raises for a mismatch
    what: str  # for the page: what one batch does, and what would be a mismatch
    replays: bool  # whether the seed decides everything, timing included


@dataclass(frozen=True, slots=True)
class Run:
    """All batches of one kind on one version of the code, with one set of libraries."""

    kind: str
    commit: str
    versions: str
    batches: int
    seconds: float
    totals: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A batch that failed: with `mended` empty it is an open one."""

    kind: str
    seed: int
    commit: str
    what: str
    mended: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """Everything that is kept; each change is a new value."""

    runs: tuple[Run, ...] = ()
    next_seeds: Mapping[str, int] | None = None
    mismatches: tuple[Mismatch, ...] = ()

    def next_seed(self, kind: str) -> int:
        """The seed of the kind's next batch: 0, then one more for each."""
        return (self.next_seeds or {}).get(kind, 0)

    def with_batch(self, run: Run, seed: int, mismatch: str = "") -> Self:
        """This with one batch more, whose totals go to those of the same kind, commit and versions."""
        same = _key(run)
        merged = [_sum(one, run) if _key(one) == same else one for one in self.runs]
        if same not in map(_key, self.runs):
            merged.append(run)
        seen = self.mismatches
        if mismatch:
            seen = (*seen, Mismatch(run.kind, seed, run.commit, mismatch))
        seeds = {**(self.next_seeds or {}), run.kind: max(self.next_seed(run.kind), seed + 1)}
        return replace(self, runs=tuple(merged), next_seeds=seeds, mismatches=seen)

    def mended(self, kind: str, seed: int, by: str) -> Self:
        """This with that mismatch closed. Raises KeyError when no open one has the seed."""
        is_it = [one.kind == kind and one.seed == seed and not one.mended for one in self.mismatches]
        if not any(is_it):
            raise KeyError(f"{kind}:{seed}")
        closed = (replace(one, mended=by) if it else one for one, it in zip(self.mismatches, is_it, strict=True))
        return replace(self, mismatches=tuple(closed))

    @property
    def open(self) -> tuple[Mismatch, ...]:
        return tuple(one for one in self.mismatches if not one.mended)

    def totals(self, kind: str) -> Counter[str]:
        """What the kind has counted on all versions of the code."""
        return sum((Counter(one.totals) for one in self.runs if one.kind == kind), Counter())

    def batches(self, kind: str) -> int:
        return sum(one.batches for one in self.runs if one.kind == kind)

    def seconds(self, kind: str) -> float:
        return sum(one.seconds for one in self.runs if one.kind == kind)


def _key(run: Run) -> tuple[str, str, str]:
    return run.kind, run.commit, run.versions


def _sum(one: Run, other: Run) -> Run:
    return replace(
        one,
        batches=one.batches + other.batches,
        seconds=one.seconds + other.seconds,
        totals=dict(Counter(one.totals) + Counter(other.totals)),
    )


def load(path: Path) -> Proof:
    """What the file holds; an empty proof when there is none."""
    if not path.exists():
        return Proof()
    held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    runs, mismatches = (Run(**one) for one in held["runs"]), (Mismatch(**one) for one in held["mismatches"])
    return Proof(tuple(runs), held["next_seeds"], tuple(mismatches))


def save(proof: Proof, path: Path) -> None:
    """Replace the file as a whole: whoever is killed meanwhile leaves the old one."""
    held = {
        "next_seeds": dict(sorted((proof.next_seeds or {}).items())),
        "mismatches": [asdict(one) for one in proof.mismatches],
        "runs": [
            {**asdict(one), "seconds": round(one.seconds, 1), "totals": dict(sorted(one.totals.items()))}
            for one in sorted(proof.runs, key=_key)
        ],
    }
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(json.dumps(held, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


HEAD = """\
# Test results

Written by `make prove BUDGET=60m`, which adds the batches of each run; do not edit. A batch is one seed of one kind,
counted when it ends, with or without a mismatch; `docs/proof.json` has the same by commit.
"""


def render(proof: Proof, kinds: Mapping[str, Kind]) -> str:
    """The page in Markdown."""
    return "\n".join((HEAD, *_summary(proof, kinds), *_mismatches(proof), *_details(proof, kinds), *_runs(proof)))


def _summary(proof: Proof, kinds: Mapping[str, Kind]) -> Iterator[str]:
    rows = []
    for name, kind in kinds.items():
        totals, seconds = proof.totals(name), proof.seconds(name)
        found = [one for one in proof.mismatches if one.kind == name]
        for what, target in kind.targets.items():
            rate = f"{totals[what] / seconds * 60:,.1f}" if seconds else "–"
            reached = " ✓" if totals[what] >= target else ""
            rows.append((name, f"{what}: {totals[what]:,}", f"{target:,}{reached}", rate, str(len(found))))
    yield from _table(("Kind", "Done", "Target", "Per minute", "Mismatches"), rows)


def _mismatches(proof: Proof) -> Iterator[str]:
    """Each with the command that runs the failed batch again."""
    yield "\n## Mismatches\n"
    if not proof.mismatches:
        yield "None."
        return
    yield f"{len(proof.mismatches)}, of which {len(proof.open)} open. Fixed ones stay listed.\n"
    for one in proof.mismatches:
        replay = f"python -m tests.prove --replay {one.kind}:{one.seed}"
        yield f"- `{replay}` at `{one.commit}`: {_line(one.what)} — **{one.mended or 'open'}**"


def _details(proof: Proof, kinds: Mapping[str, Kind]) -> Iterator[str]:
    for name, kind in kinds.items():
        totals = proof.totals(name)
        yield f"\n## {name.capitalize()}\n\n{kind.what}\n"
        repeats = "the batch exactly." if kind.replays else "the choices; timing may differ."
        yield f"The same seed repeats {repeats}"
        yield f"{proof.batches(name)} batches in {proof.seconds(name) / 60:,.1f} minutes.\n"
        counts = [(what, f"{count:,}") for what, count in sorted(totals.items()) if CROSS not in what]
        yield from _table(("Count of", "Number"), counts)
        yield from _crosses(totals)


def _crosses(totals: Counter[str]) -> Iterator[str]:
    """The totals named `A × B` as a table of A by B."""
    pairs = {tuple(what.split(CROSS)): count for what, count in totals.items() if CROSS in what and count}
    if not pairs:
        return
    columns = list(dict.fromkeys(sorted(pair[1] for pair in pairs)))
    rows = list(dict.fromkeys(sorted(pair[0] for pair in pairs)))
    yield f"\n{len(pairs)} pairs covered, {sum(pairs.values()):,} times.\n"
    yield from _table(("", *columns), [(row, *(f"{pairs.get((row, one), 0):,}" for one in columns)) for row in rows])


def _runs(proof: Proof) -> Iterator[str]:
    yield "\n## Versions\n"
    by_code: Counter[tuple[str, str]] = Counter()
    for one in proof.runs:
        by_code[one.commit, one.versions] += round(one.seconds)
    rows = [(f"`{commit}`", versions, f"{s / 60:,.1f}") for (commit, versions), s in sorted(by_code.items())]
    yield from _table(("Code", "Libraries", "Minutes"), rows)
    yield ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def _line(text: str, limit: int = 300) -> str:
    """The text on one line, without what Markdown would take for a mark."""
    line = " ".join(text.split()).replace("|", "/").replace("`", "'").replace("*", "·").replace("<", "‹")
    return line if len(line) <= limit else line[:limit] + "…"
