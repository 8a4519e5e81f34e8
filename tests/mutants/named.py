"""Named mistakes that a test must detect: `python -m tests.mutants.named [--name WORDS]`.

Makes each change of `named.toml` in a copy of the code, runs its tests there, and writes the page. Ends with 1 when one
survives.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mutants-by-name.md"
_TESTS_FAILED = 1  # pytest's exit code; others mean that the tests could not run

_HEAD = """# Named mutants

Likely mistakes with format 3, position translation and clustering, and failures that `make test` must always detect.
`python -m tests.mutants.named` applies each change of `tests/mutants/named.toml` to a copy of the code and runs the
named tests of `make test`, which pass without the change.

Written by `python -m tests.mutants.named`, part of `make mutants`: {killed} of {made} killed.

| Mistake | File | Tests | Result |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Named:
    """A mistake: a text that stands once in a file, what it becomes, and the tests of which one must fail."""

    name: str
    file: str
    was: str
    becomes: str
    tests: tuple[str, ...]


def read_named() -> tuple[Named, ...]:
    """All that `named.toml` has, in its order."""
    found = tomllib.loads(Path(__file__).with_name("named.toml").read_text())["mutant"]
    return tuple(Named(**{**one, "tests": tuple(one["tests"])}) for one in found)


def main() -> None:
    """Parse the command line, run, write the page unless only some were tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="", help="only mistakes whose name has these words; writes no page")
    wanted = parser.parse_args().name
    tried = [one for one in read_named() if wanted in one.name]
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for name in ("amoro_core", "amoro_optimizer", "amoro_cli", "tests", "proto"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        every = sorted({test for one in tried for test in one.tests})
        if (code := _tested(copy, every)) != 0:
            sys.exit(f"the tests end with {code} without any mistake")
        killed = [_is_killed(copy, one) for one in tried]
    if not wanted:
        PAGE.write_text(_page(tried, killed))
    for one, is_killed in zip(tried, killed, strict=True):
        print("killed  " if is_killed else "SURVIVED", one.name)
    sys.exit(not all(killed))


def _is_killed(copy: Path, one: Named) -> bool:
    path = copy / one.file
    before = path.read_text()
    path.write_text(before.replace(one.was, one.becomes))
    code = _tested(copy, one.tests)
    path.write_text(before)
    if code not in (0, _TESTS_FAILED):
        sys.exit(f"{one.name}: the tests end with {code}")
    return code == _TESTS_FAILED


def _tested(copy: Path, tests: Sequence[str]) -> int:
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tier=test", *tests]
    return subprocess.run(command, cwd=copy, check=False, capture_output=True).returncode


def _page(tried: Sequence[Named], killed: Sequence[bool]) -> str:
    rows = (
        f"| {one.name} | `{one.file}` | {', '.join(f'`{test}`' for test in one.tests)} |"
        f" {'killed' if is_killed else '**survived**'} |\n"
        for one, is_killed in zip(tried, killed, strict=True)
    )
    return _HEAD.format(killed=sum(killed), made=len(tried)) + "".join(rows)


if __name__ == "__main__":
    main()
