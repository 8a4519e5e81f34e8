"""What figures were measured on, and by."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

OURS = Path(__file__).resolve().parents[2]


def described(checkouts: Mapping[str, Path] | None = None) -> dict[str, object]:
    """Commits by the names of checkouts, ours alone by default; versions, cores, and the load and time of now."""
    return {
        "commits": {name: commit_of(path) for name, path in (checkouts or {"ours": OURS}).items()},
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def commit_of(checkout: Path) -> str:
    """The commit of a checkout, and whether it has other changes; empty where it is none."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True).stdout.strip()


@contextmanager
def modules_of(checkout: Path) -> Iterator[str]:
    """The path of Python for processes that run our benches with the packages of that checkout."""
    with tempfile.TemporaryDirectory() as packages:
        for package in ("amoro_core", "amoro_optimizer", "amoro_cli"):
            place = checkout.resolve() / package
            if not place.is_dir():  # ours would be measured in its stead
                raise SystemExit(f"{checkout} has no {package}")
            (Path(packages) / package).symlink_to(place)
        yield f"{packages}{os.pathsep}{OURS}"


def in_rounds(
    bench: str, arguments: Sequence[str], checkouts: Mapping[str, Path], rounds: int
) -> dict[str, list[dict[str, Any]]]:
    """What a program of ours prints as JSON in each round, with the packages of each checkout in turn.

    It runs with `--once`, and with Python's path as of that checkout, which programs that it starts have, too.
    """
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    command = [sys.executable, "-m", bench, "--once", *arguments]
    for _ in range(rounds):
        for name, checkout in checkouts.items():
            with modules_of(checkout) as path, tempfile.TemporaryDirectory() as elsewhere:
                # Elsewhere: what lies in the current directory would come before all of the path.
                env = {**os.environ, "PYTHONPATH": path}
                run = subprocess.run(command, cwd=elsewhere, env=env, stdout=subprocess.PIPE, check=True, text=True)
            found[name].append(dict(json.loads(run.stdout.splitlines()[-1])))
            print(f"{name}: {found[name][-1]}", file=sys.stderr, flush=True)
    return found


def in_turn(against: Path | None) -> dict[str, Path]:
    """Ours, and the checkout that it is compared with."""
    return {"ours": OURS} | ({} if against is None else {"before": against.resolve()})


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each figure that every round has."""
    return {
        name: round(statistics.median(one[name] for one in rounds), 4)
        for name in rounds[0]
        if all(name in one for one in rounds)
    }


def peak_mb() -> float:
    """The most memory since this program began; what `getrusage` tells counts the one that started it, too."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) / 1024
