"""The results page, rendered from the proof alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.prove.proof import CROSS, Kind, Mismatch, Proof

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
            done, total = totals[what], f"{totals[what]:,}"
            rows.append(
                (name, f"{what}: {total}", f"{target:,}{' ✓' if done >= target else ''}", rate, str(len(found)))
            )
    yield from _table(("Kind", "Done", "Target", "Per minute", "Mismatches"), rows)


def _mismatches(proof: Proof) -> Iterator[str]:
    yield "\n## Mismatches\n"
    if not proof.mismatches:
        yield "None."
        return
    yield f"{len(proof.mismatches)}, of which {len(proof.open)} open. Fixed ones stay listed.\n"
    for one in proof.mismatches:
        yield f"- `{replay(one)}` at `{one.commit}`: {_line(one.what)} — **{one.mended or 'open'}**"


def replay(one: Mismatch) -> str:
    """The command that runs the failed batch again."""
    return f"python -m tests.prove --replay {one.kind}:{one.seed}"


def _details(proof: Proof, kinds: Mapping[str, Kind]) -> Iterator[str]:
    for name, kind in kinds.items():
        totals = proof.totals(name)
        yield f"\n## {name.capitalize()}\n\n{kind.what}\n"
        yield (
            "The same seed repeats the batch exactly."
            if kind.replays
            else "The same seed repeats the choices; timing may differ."
        )
        yield f"{proof.batches(name)} batches in {proof.seconds(name) / 60:,.1f} minutes.\n"
        yield from _table(
            ("Count of", "Number"),
            [(what, f"{count:,}") for what, count in sorted(totals.items()) if CROSS not in what],
        )
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
    yield from _table(
        ("Code", "Libraries", "Minutes"),
        [(f"`{commit}`", versions, f"{seconds / 60:,.1f}") for (commit, versions), seconds in sorted(by_code.items())],
    )
    yield ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def _line(text: str, limit: int = 300) -> str:
    """The text on one line, without what Markdown would take for a mark."""
    line = " ".join(text.split()).replace("|", "/").replace("`", "'").replace("*", "·").replace("<", "‹")
    return line if len(line) <= limit else line[:limit] + "…"
