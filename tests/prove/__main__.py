"""`python -m tests.prove`: batch after batch until the budget is used up."""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path

from amoro_core.model.properties import parse_duration
from tests.prove.kinds import KINDS
from tests.prove.proof import Proof, Run, load, render, save

ROOT = Path(__file__).parents[2]
STATE, PAGE = ROOT / "docs" / "proof.json", ROOT / "docs" / "proof.md"
LOGS = ROOT / "build" / "prove"
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
    parser.add_argument("--batch", nargs=2, metavar=("KIND:SEED", "RESULT"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.batch:
        return _run(*_split(given.batch[0]), Path(given.batch[1]))
    if given.replay:
        return _replay(*_split(given.replay))
    if given.mended:
        if not given.by:
            parser.error("--mended needs --by")
        return _mended(*_split(given.mended), given.by)
    try:
        return _prove(parse_duration(given.budget).total_seconds(), given.only or list(KINDS))
    except KeyboardInterrupt:
        return 130


def _split(named: str) -> tuple[str, int]:
    kind, seed = named.split(":")
    return kind, int(seed)


def _run(kind: str, seed: int, result: Path) -> int:
    """Run a batch in this process; write what it counted, and how it failed, to the file."""
    totals, mismatch = Counter[str](), ""
    try:
        KINDS[kind].run(seed, totals)
    except Exception as error:
        traceback.print_exc()
        mismatch = f"{type(error).__name__}: {error}"
    result.write_text(json.dumps({"totals": totals, "mismatch": mismatch}))
    return 1 if mismatch else 0


def _prove(budget_s: float, only: Collection[str]) -> int:
    """Run batches of these kinds while one fits into the time that is left."""
    until, commit = time.monotonic() + budget_s, _code()
    named = (f"{name} {version(name)}" for name in ("pyiceberg", "pyarrow", "grpcio", "hypothesis"))
    versions = ", ".join((f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}", *named))
    while (kind := _next_kind(load(STATE), only, until - time.monotonic())) is not None:
        seed, began = load(STATE).next_seed(kind), time.monotonic()
        totals, mismatch = _batch(kind, seed)
        seconds = time.monotonic() - began
        # Read again: another run, of other kinds, may have added to it meanwhile.
        _keep(load(STATE).with_batch(Run(kind, commit, versions, 1, seconds, totals), seed, mismatch))
        print(f"{kind}:{seed} {'MISMATCH ' + mismatch if mismatch else 'ok'} in {seconds:.0f} s", flush=True)
    _keep(load(STATE))
    open_ones = load(STATE).open
    print(f"{PAGE.relative_to(ROOT)}: {len(open_ones)} mismatches are open")
    return 1 if open_ones else 0


def _next_kind(proof: Proof, only: Collection[str], left_s: float) -> str | None:
    """The kind that has had the least time, of those that have not reached their targets first; None if none fits."""

    def has_reached(name: str) -> bool:
        return all(proof.totals(name)[what] >= target for what, target in KINDS[name].targets.items())

    def usual_s(name: str) -> float:
        batches = proof.batches(name)
        return proof.seconds(name) / batches if batches else KINDS[name].seconds

    fitting = [name for name in only if usual_s(name) <= left_s]
    return min(fitting, key=lambda name: (has_reached(name), proof.seconds(name)), default=None)


def _batch(kind: str, seed: int) -> tuple[dict[str, int], str]:
    """What a batch counted and how it failed, if it did; its output stays in `build/prove` then."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log, result = LOGS / f"{kind}-{seed}.log", LOGS / f"{kind}-{seed}.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.prove", "--batch", f"{kind}:{seed}", str(result)]
    patience = max(LEAST_PATIENCE_S, PATIENCE * KINDS[kind].seconds)
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


def _keep(proof: Proof) -> None:
    save(proof, STATE)
    PAGE.write_text(render(proof, KINDS), encoding="utf-8")


def _replay(kind: str, seed: int) -> int:
    totals, mismatch = _batch(kind, seed)
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
    _keep(load(STATE).mended(kind, seed, by))
    return 0


def _code() -> str:
    """The commit that is proved; with a `+` when files differ from it, other than the results."""
    but = [f":!{path.relative_to(ROOT)}" for path in (STATE, PAGE)]
    asked = (["rev-parse", "--short=10", "HEAD"], ["status", "--porcelain", "--", ".", *but])
    try:
        commit, changed = (
            subprocess.run(["git", "-C", str(ROOT), *one], capture_output=True, check=True, text=True).stdout.strip()
            for one in asked
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changed else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
