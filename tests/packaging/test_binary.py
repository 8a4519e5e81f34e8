"""The single file on a machine with Python and nothing else."""

import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.packaging.conftest import PLAIN_PYTHON, Machine

pytestmark = pytest.mark.timeout(900)  # it downloads and packs what it needs


@pytest.fixture(scope="module")
def binary(made: Callable[[str], Path]) -> Path:
    return made("binary") / "amoro.pyz"


def test_the_single_file_runs_the_demo_where_only_python_is(binary: Path, machine: Machine) -> None:
    said = machine.run(PLAIN_PYTHON, binary, "--version")
    assert (said.returncode, said.stdout, said.stderr) == (0, f"amoro {version('amoro')}\n", "")
    shown = machine.run(PLAIN_PYTHON, binary, "demo", "--seconds", "8")
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stderr + shown.stdout
    assert re.search(r"rows ([\d,]+) = \1 ✓  checksum ([0-9a-f]{16}) = \2 ✓$", shown.stdout, re.MULTILINE)
