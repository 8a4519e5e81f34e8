"""What figures were measured on, how processes are measured, and medians of interleaved rounds."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
Figures = dict[str, float]
#: Starts what is measured: the system would count the memory of a larger parent, too.
_SMALL_PARENT = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
figures = {"cpu s": usage.ru_utime + usage.ru_stime, "peak MB": usage.ru_maxrss / 1024}
print(json.dumps({"status": os.waitstatus_to_exitcode(status), "figures": figures}))
"""


def options(description: str | None, **defaults: object) -> argparse.Namespace:
    """The command line's options by name, each of its default's type; False is a switch."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in defaults.items():
        kind: dict[str, Any] = {"type": type(default), "default": default}
        parser.add_argument(f"--{name.replace('_', '-')}", **{"action": "store_true"} if default is False else kind)
    return parser.parse_args()


def say(figures: Mapping[str, object]) -> None:
    """Print the figures of a bench as its last output, with the commit, versions, cores, and present load and time."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    described = {
        "commit": subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True).stdout.strip(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    print(json.dumps({**figures, **described}, indent=1))


def tell(line: str) -> None:
    """Print progress."""
    print(line, file=sys.stderr, flush=True)


def in_rounds(ways: Mapping[str, Callable[[], Figures]], rounds: int) -> dict[str, list[Figures]]:
    """The figures of every way in each round; every second round goes backwards, as a machine slows down by its use."""
    found: dict[str, list[Figures]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            found[name].append(ways[name]())
            tell(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in found[name][-1].items()))
    return found


def medians(rounds: Sequence[Figures]) -> Figures:
    """The median of each figure."""
    return {key: round(statistics.median(one[key] for one in rounds), 4) for key in rounds[0]}


def ratio(some: Sequence[Figures], others: Sequence[Figures], key: str = "cpu s") -> float:
    """The median of the ratios of the rounds."""
    return round(statistics.median(one[key] / other[key] for one, other in zip(some, others, strict=True)), 3)


def run_whole(command: Sequence[str], environment: Mapping[str, str], directory: Path) -> Figures:
    """CPU and peak of memory of one process from its start to its end, which must be a good one."""
    parent = [sys.executable, "-ISc", _SMALL_PARENT, *command]
    done = subprocess.run(parent, env=environment, cwd=directory, stdout=subprocess.PIPE, check=True, text=True)
    told = json.loads(done.stdout)
    if told["status"]:
        raise SystemExit(f"{command[:4]} ended with {told['status']}")
    return dict(told["figures"])


def memory_mb(key: str, pid: int | str = "self") -> float:
    """`VmRSS` of a process, or `VmHWM`: the most since it began."""
    (found,) = re.findall(rf"{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found) / 1024


class Child:
    """A process with a role in a bench, until the block ends; answers a line of JSON for each line that it gets."""

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._popen = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        self._popen.wait(120)

    def ask(self, word: str = "") -> dict[str, float | str]:
        """The answer to a word; without one, the next line."""
        reader, writer = self._popen.stdout, self._popen.stdin
        if reader is None or writer is None:
            raise RuntimeError("the process has no pipes")
        if word:
            writer.write(f"{word}\n")
            writer.flush()
        line = reader.readline()
        if not line.startswith("{"):
            raise SystemExit(f"a process of the bench said {line!r}")
        return dict(json.loads(line))

    def figures(self, word: str) -> Figures:
        """The answer, all of whose values are numbers."""
        return {key: float(value) for key, value in self.ask(word).items()}


def answer(values: Mapping[str, object]) -> None:
    """What a child says."""
    print(json.dumps(values), flush=True)
