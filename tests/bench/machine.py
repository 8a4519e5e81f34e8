"""What figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping
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
