"""Machines that have nothing of ours."""

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Machine:
    """A user's directory with nothing in it, and an environment that holds nothing else."""

    home: Path

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """The command's end; HOME is all that it is told, but for the encoding."""
        return subprocess.run(
            command,
            env={"HOME": str(self.home), "PYTHONIOENCODING": "utf-8"},
            cwd=self.home,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=400,
        )


@pytest.fixture
def machine() -> Iterator[Machine]:
    # Paths as short as a user's: pex warns where its scripts' first lines get too long for the system.
    with tempfile.TemporaryDirectory(prefix="user") as home:
        yield Machine(Path(home))
