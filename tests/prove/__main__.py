"""`python -m tests.prove`: batch after batch until the budget is used up."""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import subprocess
import sys
import time
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path

from amoro_core.model.quantities import parse_duration
from tests.prove.choosing import choose
from tests.prove.kinds import KINDS
from tests.prove.page import render
from tests.prove.proof import Proof, Run, load, save

ROOT = Path(__file__).parents[2]
STATE, PAGE = ROOT / "docs" / "proof.json", ROOT / "docs" / "proof.md"
LOGS = ROOT / "build" / "prove"
LIBRARIES = ("pyiceberg", "pyarrow", "grpcio", "hypothesis")
#: A batch is taken for hanging after so many times what it usually takes, and after five minutes at the earliest.
PATIENCE, LEAST_PATIENCE_S = 10, 300


def main(arguments: list[str]) -> int:
    """0 when no mismatch is open, 1 when one is, 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description=__doc__)
    parser.add_argument("--budget", default="10m", help="how long to go on: 90s, 60m, 8h")
    parser.add_argument("--only", action="append", choices=list(KINDS), help="only batches of this kind")
    parser.add_argument("--replay", metavar="KIND:SEED", help="run one batch again, without counting it")
    parser.add_argument("--mended", metavar="KIND:SEED", help="close a mismatch, after its batch has run well")
    parser.add_argument("--by", help="the commit that mended it, or why it was none")
    given = parser.parse_args(arguments)
    if given.replay:
        kind, seed = given.replay.split(":")
        return _replay(kind, int(seed))
    if given.mended:
        if not given.by:
            parser.error("--mended needs --by")
        kind, seed = given.mended.split(":")
        return _mended(kind, int(seed), given.by)
    try:
        return prove(parse_duration(given.budget).total_seconds(), given.only or list(KINDS))
    except KeyboardInterrupt:
        return 130


def prove(budget_s: float, only: Collection[str]) -> int:
    """Run batches of these kinds while one fits into the time that is left."""
    until, commit, versions = time.monotonic() + budget_s, code(), libraries()
    while True:
        proof = load(STATE)
        kind = choose(proof, {name: KINDS[name] for name in only}, until - time.monotonic())
        if kind is None:
            break
        seed, began = proof.next_seed(kind), time.monotonic()
        totals, mismatch = batch(kind, seed)
        seconds = time.monotonic() - began
        # Read again: another run, of other kinds, may have added to it meanwhile.
        keep(load(STATE).with_batch(Run(kind, commit, versions, 1, seconds, totals), seed, mismatch))
        print(f"{kind}:{seed} {'MISMATCH ' + mismatch if mismatch else 'ok'} in {seconds:.0f} s", flush=True)
    keep(load(STATE))
    open_ones = load(STATE).open
    print(f"{PAGE.relative_to(ROOT)}: {len(open_ones)} mismatches are open")
    return 1 if open_ones else 0


def batch(kind: str, seed: int) -> tuple[dict[str, int], str]:
    """What a batch counted and how it failed, if it did; its output stays in `build/prove` then."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log, result = LOGS / f"{kind}-{seed}.log", LOGS / f"{kind}-{seed}.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.prove.batch", kind, str(seed), str(result)]
    patience = max(LEAST_PATIENCE_S, PATIENCE * KINDS[kind].SECONDS)
    with log.open("wb") as output:
        try:
            status = subprocess.run(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=patience, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return {}, f"did not end within {patience:g} s"
    if not result.exists():
        return {}, f"the batch's process ended with {status} before it had a result"
    found = json.loads(result.read_text())
    result.unlink()
    if not found["mismatch"]:
        log.unlink()
    return found["totals"], found["mismatch"]


def keep(proof: Proof) -> None:
    save(proof, STATE)
    PAGE.write_text(render(proof, KINDS), encoding="utf-8")


def _replay(kind: str, seed: int) -> int:
    totals, mismatch = batch(kind, seed)
    print(json.dumps(totals, indent=1, sort_keys=True))
    if mismatch:
        print(f"{mismatch}\nall of it: {LOGS / f'{kind}-{seed}.log'}")
    return 1 if mismatch else 0


def _mended(kind: str, seed: int, by: str) -> int:
    if not any((one.kind, one.seed) == (kind, seed) for one in load(STATE).open):
        print(f"no open mismatch is {kind}:{seed}", file=sys.stderr)
        return 2
    if _replay(kind, seed):
        return 1
    keep(load(STATE).mended(kind, seed, by))
    return 0


def code() -> str:
    """The commit that is proved; with a `+` when files differ from it, other than the results."""
    asked = ["git", "-C", str(ROOT)]
    try:
        commit = subprocess.run([*asked, "rev-parse", "--short=10", "HEAD"], capture_output=True, check=True, text=True)
        changed = subprocess.run(
            [*asked, "status", "--porcelain", "--", ".", f":!{STATE.relative_to(ROOT)}", f":!{PAGE.relative_to(ROOT)}"],
            capture_output=True,
            check=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("+" if changed.stdout.strip() else "")


def libraries() -> str:
    named = (f"{name} {version(name)}" for name in LIBRARIES)
    return ", ".join((f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}", *named))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
