"""Rules and expressions tried by Prometheus's own engine, as `promtool test rules` runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp

import pytest

from amoro_core.documents.prometheus_files import RULES, rules

ROOT = Path(__file__).parents[2]
ALERTS = Path(mkdtemp(prefix="amoro-rules-")) / RULES
ALERTS.write_text(rules(), encoding="utf-8")
#: Where `make test` unpacks it.
_UNPACKED = ROOT / "build" / "prometheus" / "usr" / "bin"

#: A minute's values by series, as Prometheus writes a series; None: nobody answered.
Scrape = Mapping[str, float] | None


def found(program: str = "promtool") -> Path:
    """Where the program is; skips the test without it, and fails it in CI."""
    known = shutil.which(program)
    if known:
        return Path(known)
    if (_UNPACKED / program).exists():
        return _UNPACKED / program
    reason = f"this test needs {program}: run make test"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def run(*arguments: str | Path) -> None:
    """Run promtool; fails the test with what it says."""
    done = subprocess.run([found(), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def check(scratch: Path, scrapes: Sequence[Scrape], expected: Mapping[str, Mapping[str, float]]) -> None:
    """Fail unless at the last of the scrapes, one a minute, each expression has exactly these values by series."""
    names = dict.fromkeys(name for scrape in scrapes for name in scrape or ())
    series = [{"series": name, "values": " ".join(_written(scrapes, name))} for name in names]
    tried = []
    for expression, samples in expected.items():
        exact = [{"labels": labels, "value": value} for labels, value in samples.items()]
        tried.append({"expr": expression, "eval_time": f"{len(scrapes) - 1}m", "exp_samples": exact})
    test = {"interval": "1m", "input_series": series, "promql_expr_test": tried}
    file = scratch / "rules-test.json"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    run("test", "rules", file)


def _written(scrapes: Sequence[Scrape], name: str) -> Iterator[str]:
    """The values of one series as promtool reads them; it ends where nobody answered or told it."""
    told = False
    for scrape in scrapes:
        value = (scrape or {}).get(name)
        yield ("stale" if told else "_") if value is None else repr(value)
        told = value is not None
