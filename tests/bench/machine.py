"""What figures were measured on, and by."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
        for package in ("amoro_core", "amoro_optimizer"):
            place = checkout.resolve() / package
            if not place.is_dir():  # ours would be measured in its stead
                raise SystemExit(f"{checkout} has no {package}")
            (Path(packages) / package).symlink_to(place)
        yield f"{packages}{os.pathsep}{OURS}"


def peak_mb() -> float:
    """The most memory since this program began; what `getrusage` tells counts the one that started it, too."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) / 1024
