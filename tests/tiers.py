"""The three tiers of tests: `make check`, `make test`, `make test-all`.

Each tier runs the tests of the one before it. A test function belongs to the tier that `tests/durations.tsv` gives; one
that is not listed there is in the tier of its directory. Below `all`, lists of cases, counts and seeds are smaller.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

TIERS = ("check", "test", "all")
TIER_VARIABLE = "AMORO_TEST_TIER"
SEED_VARIABLE = "AMORO_TEST_SEED"
DURATIONS = Path(__file__).with_name("durations.tsv")
# A test function of more CPU seconds runs in `make test-all` only, unless the list keeps it in a lower tier.
SLOW_CPU_S = 2.0
# Shorter functions of their directory's tier are not listed.
LISTED_S = 0.5
# What one of their cases takes, for the order of files.
UNLISTED_S = 0.1

_DIRECTORY_TIERS = {
    **dict.fromkeys(("unit", "store", "cli", "rpc", "admin", "api", "formats", "tools"), "check"),
    **dict.fromkeys(("spark", "spark_backend"), "all"),
}

Case = TypeVar("Case")


def current_tier() -> str:
    """The tier that runs: `all` unless `--tier` says otherwise."""
    return os.environ.get(TIER_VARIABLE, "all")


def sample(cases: Sequence[Case], *, every: int) -> list[Case]:
    """All cases in `all`, every n-th, beginning with the first, in the other tiers."""
    return list(cases) if current_tier() == "all" else list(cases[::every])


def count(small: int, full: int) -> int:
    """`full` in `all`, `small` in the other tiers."""
    return full if current_tier() == "all" else small


def seeds(small: int, full: int) -> list[int]:
    """Consecutive seeds from the base that the report's header prints: 0, unless `--seed` names another."""
    base = int(os.environ.get(SEED_VARIABLE, "0"))
    return [base + offset for offset in range(count(small, full))]


@dataclass(frozen=True)
class Duration:
    """A test function's tier, and the seconds that it takes with all its cases and fixtures."""

    tier: str
    cpu_s: float
    wall_s: float


def function_of(node_id: str) -> str:
    """The node id without parameters."""
    return node_id.split("[", 1)[0]


def directory_tier(node_id: str) -> str:
    """The tier of a test function that is not listed."""
    parts = node_id.split("/")
    return _DIRECTORY_TIERS.get(parts[1], "test") if len(parts) > 2 else "test"


def read_durations() -> dict[str, Duration]:
    """The committed list: test function → tier and seconds."""
    durations = {}
    for line in DURATIONS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            tier, cpu_s, wall_s, function = line.split("\t")
            if tier not in TIERS:
                raise ValueError(f"{DURATIONS.name}: unknown tier {tier!r} of {function}; expected one of {TIERS}")
            durations[function] = Duration(tier, float(cpu_s), float(wall_s))
    return durations


def updated(
    listed: Mapping[str, Duration], measured: Mapping[str, tuple[float, float]], *, whole: bool
) -> dict[str, Duration]:
    """The list after a run: seconds as measured, tiers as before; a new slow function goes to `all`.

    `measured` maps functions to CPU and wall seconds. After a run of the whole suite, what did not run is dropped.
    """
    result = {} if whole else dict(listed)
    for function, (cpu_s, wall_s) in measured.items():
        default = directory_tier(function)
        tier = listed[function].tier if function in listed else "all" if cpu_s > SLOW_CPU_S else default
        result.pop(function, None)
        if tier != default or max(cpu_s, wall_s) >= LISTED_S:
            result[function] = Duration(tier, max(0.0, round(cpu_s, 1)), round(wall_s, 1))
    return result


def write_durations(durations: Mapping[str, Duration]) -> None:
    """Writes the list, sorted by function."""
    lines = [
        "# Tier, CPU seconds, wall seconds, test function. Seconds include all cases and fixtures.",
        "# Seconds are rewritten by `make test-all DURATIONS=write`; the tier of a listed function is edited by hand.",
    ]
    for function, duration in sorted(durations.items()):
        lines.append(f"{duration.tier}\t{duration.cpu_s:.1f}\t{duration.wall_s:.1f}\t{function}")
    DURATIONS.write_text("\n".join(lines) + "\n", encoding="utf-8")
