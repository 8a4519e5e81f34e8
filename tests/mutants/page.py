"""Which mutants are tried, what became of them, and the page that says so; values only."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.parts import Part

KILLED = frozenset({"killed", "timeout", "segfault"})
NOT_TRIED = frozenset({"not checked", "check was interrupted by user"})

#: What survivors mean, written by hand.
MEANINGS = Path(__file__).with_name("meanings.toml")

#: No module has fewer in a sample, where it has as many: its share would say nothing.
LEAST = 10

UNEXPLAINED = "**not explained**"


@dataclass(frozen=True, slots=True)
class Change:
    """A mutant by its text, so that it is known again after other lines have moved."""

    where: str  # module and function
    was: str
    becomes: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutant that was drawn, and what became of it."""

    module: str
    change: Change
    status: str

    @property
    def is_killed(self) -> bool:
        return self.status in KILLED

    @property
    def is_tried(self) -> bool:
        return self.status not in NOT_TRIED


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the sample and how it was drawn."""

    seed: int
    minutes: float  # of all runs that it goes on with
    is_again: bool  # after others, whose kills it keeps
    made: Mapping[str, int]  # all mutants of each module
    mutants: tuple[Mutant, ...]

    @property
    def tried(self) -> tuple[Mutant, ...]:
        return tuple(one for one in self.mutants if one.is_tried)

    @property
    def survivors(self) -> tuple[Mutant, ...]:
        """Ordered by module and text."""
        found = (one for one in self.tried if not one.is_killed)
        return tuple(sorted(found, key=lambda one: (one.module, one.change.where, one.change.was, one.change.becomes)))


def sample(names: Mapping[str, Sequence[str]], size: int, seed: int) -> list[str]:
    """About `size` names, from each module its share and at least LEAST; the same ones for the same seed."""
    total = sum(map(len, names.values()))
    chosen: list[str] = []
    for module, some in sorted(names.items()):
        share = max(LEAST, round(size * len(some) / total)) if total else 0
        draw = random.Random(f"{seed} {module}")
        chosen += draw.sample(sorted(some), min(share, len(some)))
    return chosen


def change_of(where: str, diff: str) -> Change:
    """The change of a unified diff, its lines joined and without indentation."""
    lines = diff.splitlines()[2:]
    sides = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return Change(where, *sides)


def share_killed(mutants: Iterable[Mutant]) -> float:
    """Of those tried, in percent; 0 without any."""
    tried = [one for one in mutants if one.is_tried]
    return 100 * sum(one.is_killed for one in tried) / len(tried) if tried else 0.0


def read_meanings(text: str) -> dict[Change, str]:
    """What is written down about survivors. Raises ValueError where one stands twice."""
    found: dict[Change, str] = {}
    for one in tomllib.loads(text).get("survivor", []):
        change = Change(one["where"], one["was"], one["becomes"])
        if change in found:
            raise ValueError(f"explained twice: {change}")
        found[change] = " ".join(one["means"].split())
    return found


def render(run: Run, meanings: Mapping[Change, str], command: str, part: Part) -> str:
    """The page in Markdown."""
    unexplained = sum(one.change not in meanings for one in run.survivors)
    killed = sum(one.is_killed for one in run.tried)
    again = " Several runs: later ones repeated only the survivors." if run.is_again else ""
    lines = [
        _HEAD.format(title=part.title, modules=part.modules),
        f"Written by `{command}`: {len(run.mutants)} of {sum(run.made.values())} mutants drawn with seed {run.seed}, "
        f"{len(run.tried)} tried ({run.minutes:.0f} min), **{killed} killed "
        f"({share_killed(run.mutants):.1f} %)**, {len(run.survivors)} survived, {unexplained} of them unexplained."
        f"{again}",
        "",
        "| Module | Mutants | Drawn | Tried | Killed | Share |",
        "|---|--:|--:|--:|--:|--:|",
        *(_row(run, module) for module in sorted(run.made)),
        "",
        "## Survivors",
        "",
        "| Place | Code | Mutant | Meaning |",
        "|---|---|---|---|",
    ]
    for one in run.survivors:
        change = one.change
        reason = " (no test reaches it)" if one.status == "no tests" else ""
        means = meanings.get(change, UNEXPLAINED)
        lines.append(f"| `{_short(change.where)}` | {_code(change.was)} | {_code(change.becomes)} | {means}{reason} |")
    return "\n".join(lines) + "\n"


_HEAD = """# Mutants of {title}

A mutant is the code with one small change: an inverted comparison, a removed call, a number increased by one, a rule
that no longer refuses. A failing test kills it. mutmut creates and runs mutants; `tests/mutants/operators.py` adds
negated conditions, removed statements, lost return values, exchanged `any`/`all` and `min`/`max`, and excludes log
lines and texts of messages. mutmut excludes properties, defaults of dataclasses and constants of modules.

{modules}

`tests/mutants/meanings.toml` explains each survivor, keyed by the text of the change.
"""


def _row(run: Run, module: str) -> str:
    drawn = [one for one in run.mutants if one.module == module]
    tried = [one for one in drawn if one.is_tried]
    killed = sum(one.is_killed for one in tried)
    figures = (run.made[module], len(drawn), len(tried), killed)
    return f"| `{_short(module)}` | {' | '.join(map(str, figures))} | {share_killed(drawn):.0f} % |"


def _short(name: str) -> str:
    return name.removeprefix("amoro_core.")


def _code(text: str) -> str:
    return "`" + text.replace("`", "'").replace("|", "\\|") + "`" if text else "(nothing)"
