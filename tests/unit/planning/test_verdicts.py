"""Our verdicts beside Amoro's own, and the list of where they differ on purpose."""

import re
from pathlib import Path

import pytest

from tests.unit.planning.verdicts import CASES, Case, answer, differing, scan_of_case

_DIFFERENCES = Path(__file__).parents[3] / "docs" / "differences.md"
_ROW = re.compile(r"^\| `(c\d\w+)` \| ([a-z, ]+) \| .+ \|$", re.MULTILINE)


def listed() -> dict[str, set[str]]:
    """What the page says of each case that differs."""
    rows = _ROW.findall(_DIFFERENCES.read_text())
    assert len(rows) == len({name for name, _ in rows})
    return {name: set(parts.split(", ")) for name, parts in rows}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_our_verdict_is_amoros_but_for_what_is_listed(case: Case) -> None:
    assert differing(case) == listed().get(case["name"], set())


def test_only_known_cases_are_listed() -> None:
    assert len(CASES) == 23
    assert listed().keys() < {case["name"] for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_planned_are_the_same_tables_with_the_same_type_and_number_of_tasks(case: Case) -> None:
    ours, amoros = answer(case, scan_of_case(case)), case["amoro"]
    assert (ours["planned"], ours["type"], len(ours["tasks"])) == (
        amoros["planned"],
        amoros["type"],
        len(amoros["tasks"]),
    )
