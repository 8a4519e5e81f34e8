"""What `make binary` leaves, made from a copy of the sources, and machines that have nothing of ours."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("amoro_core", "amoro_optimizer", "amoro_cli")
#: The Python that the tests' environment was made with: no package of ours is in it.
PLAIN_PYTHON = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"


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


def ours_apart() -> dict[str, str]:
    """The environment, but for the sources on Python's path: they must not pass for an installation."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}


def copy_sources(names: Sequence[str], target: Path) -> Path:
    """The named files and directories of the repository without what running and building left there."""
    for name in names:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    return target


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Runs one of the Makefile's targets; returns the directory with what it has made."""
    repository = copy_sources(
        ("Makefile", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "docs/generate.py", "proto", *PACKAGES),
        tmp_path_factory.mktemp("repository"),
    )

    def make(target: str) -> Path:
        # What is installed already is not installed anew.
        venv = Path(sys.prefix)
        command = ["make", "--old-file", str(venv / ".test"), f"VENV={venv}", target]
        ended = subprocess.run(command, cwd=repository, env=ours_apart(), capture_output=True, text=True, timeout=800)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return repository / "dist"

    return make
