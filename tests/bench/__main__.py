"""The bars of performance: `python -m tests.bench [--small] [--only rewriting …]`.

Runs the benches one after the other and prints each figure beside its bar; it asserts nothing. With `--small` they only
show that they work: their figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.bench.machine import ROOT


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure of a bench, by its key in the output or as a function of that, and what it should be."""

    what: str
    figure: str | Callable[[Any], float]
    bar: str


@dataclass(frozen=True, slots=True)
class Bench:
    """A run of a bench, its arguments, those that are added for a small one, and its bars."""

    name: str
    full: str
    small: str
    bars: tuple[Bar, ...]


_SMALL = "--pairs 1 --processes 10"
BENCHES = (
    Bench(
        "starting",
        "",
        "--pairs 1 --file-mb 0.2 --idle-s 1",
        (
            Bar("`amoro optimize` of five files of 4 MB, CPU s", "optimize, cpu s", "≤ 2.2"),
            Bar("`amoro up` with its optimizer, idle, MB", "up, MB", "≤ 230"),
        ),
    ),
    Bench(
        "rewriting",
        "--ways encoded polars copied threads",
        "--files 6 --pairs 1",
        (
            Bar("400 files of texts encoded / Polars' merge, CPU", lambda it: _encoded_per(it, "polars"), "≤ 1.6"),
            Bar("the same encoded / copied, CPU", lambda it: _encoded_per(it, "copied"), "≥ 8"),
            Bar(
                "memory of each of two threads beyond the base, MB",
                lambda it: it["medians"]["threads"]["MB beyond the base"] / 2,
                "≤ 512",
            ),
        ),
    ),
    Bench(
        "rewriting",
        "--table mixed --files 625 --keys 1000000 --ways encoded keys",
        "--files 6 --keys 9600 --pairs 1",
        (Bar("10 M rows with 1 M equality deletes / without, CPU", lambda it: 1 / _encoded_per(it, "keys"), "≤ 1.25"),),
    ),
    Bench(
        "looking",
        "",
        "--files 20000 --manifests 20 --commits 1",
        (
            Bar("first look, CPU µs per file", lambda it: it["first look, cpu s"] / it["files"] * 1e6, "≤ 40"),
            Bar("look after a commit of twelve files into a million, CPU s", "look after a commit, cpu s", "≤ 2"),
            Bar(
                "look after a restart / the first look, CPU",
                lambda it: it["look after a restart and a commit, cpu s"] / it["first look, cpu s"],
                "≤ 1",
            ),
        ),
    ),
    Bench("scheduling", "", _SMALL, (Bar("hand-outs per second", "hand-outs per second", "≥ 300"),)),
    Bench(
        "scheduling",
        "--listeners",
        _SMALL,
        (
            Bar(
                "hand-outs beside three listeners, relative to none",
                lambda it: it["with / without"]["hand-outs per second"],
                "≥ 0.95",
            ),
        ),
    ),
    Bench(
        "scheduling",
        "--statements",
        _SMALL,
        (Bar("polls beside SQL statements, p99 ms", lambda it: it["with"]["p99 ms"], "< 50"),),
    ),
    Bench(
        "tables",
        "",
        "--tables 100 --minutes 0.2 --changes 0.5",
        (
            Bar("10,000 idle tables, share of a core", "share of a core without a change", "≤ 0.10"),
            Bar("a change is seen after at most, s", "unseen at most, s", "≤ 60"),
        ),
    ),
    Bench(
        "tables",
        "--events",
        "--tables 100 --minutes 0.2 --changes 0.5",
        (
            Bar("a change that an event tells is seen after, p99 s", "unseen, p99 s", "≤ 3"),
            Bar("10,000 tables, share of a core meanwhile", "share of a core with changes", "≤ 0.10"),
        ),
    ),
    Bench(
        "catalog",
        "",
        "--tables 2 --requests 10 --rounds 1",
        (
            Bar("a twelfth fragment's task is handed out after, p95 s", "hand-out, p95 s", "≤ 3"),
            Bar("loads per CPU s / Java's server", "ours / java, loads per CPU s", "≥ 5"),
            Bar("commits per CPU s / Java's server", "ours / java, commits per CPU s", "≥ 2"),
        ),
    ),
    Bench(
        "pages",
        "",
        "--tables 200 --loads 5",
        (Bar("table page with 10,000 tables, p95 ms", lambda it: it["tables"]["p95 ms"], "≤ 150"),),
    ),
)


def main() -> None:
    """Run each bench and print its figures as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="+", choices=sorted({one.name for one in BENCHES}))
    given = parser.parse_args()
    for bench in BENCHES:
        if given.only and bench.name not in given.only:
            continue
        arguments = [*bench.full.split(), *(bench.small.split() if given.small else ())]
        command = [sys.executable, "-m", f"tests.bench.{bench.name}", *arguments]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False, text=True)
        if done.returncode:
            print(f"{bench.name} ended with {done.returncode}; its errors are above", flush=True)
            continue
        found = json.loads(done.stdout)
        print(f"{bench.name}, {found['commit']}, {found['cpus']} cores, load {found['load']}:")
        for bar in bench.bars:
            figure = found[bar.figure] if isinstance(bar.figure, str) else bar.figure(found)
            print(f"  {bar.what:62} {figure:9.3g}  {bar.bar}", flush=True)


def _encoded_per(found: Any, way: str) -> float:
    return float(found["CPU of encoded / that of"][way])


if __name__ == "__main__":
    main()
