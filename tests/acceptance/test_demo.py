"""The demo as a user runs it: in a process of its own, off a terminal."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from amoro_core.demo.feed import Ledger, generated_flights
from tests.acceptance.processes import PATIENCE_S, amoro
from tests.tiers import sample


@contextmanager
def demo(tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A demo that is killed at the end if it still runs; its temporary files are below `tmp_path / "tmp"`."""
    (tmp_path / "tmp").mkdir(parents=True)
    home = str(tmp_path / "home")  # so that nothing of the user's own configuration is seen
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "HOME": home, "PYTHONIOENCODING": "utf-8"}
    command, pipes = (
        [sys.executable, "-m", "amoro_core", "demo", *options],
        dict.fromkeys(("stdout", "stderr"), subprocess.PIPE),
    )
    process = subprocess.Popen(command, env=environment, text=True, encoding="utf-8", **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def counts_after(output: str, what: str) -> tuple[int, int, int]:
    """The three columns of a line of the summary: written, before settling, after."""
    found = re.search(rf"{what} +([\d,]+) +([\d,]+) +([\d,]+)$", output, re.MULTILINE)
    assert found is not None, output
    first, second, third = (int(group.replace(",", "")) for group in found.groups())
    return first, second, third


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the demo ended before it said {words!r}: {process.stderr.read() if process.stderr else ''}")


def test_the_demo_ends_with_fewer_files_no_deletes_and_equal_rows(tmp_path: Path) -> None:
    output, errors, receipts = "", "", []
    for seconds in ("12", "120", "480"):  # a busy machine needs longer for its first rounds
        with demo(tmp_path / seconds, "--seconds", seconds) as process:
            output, errors = process.communicate()
        assert process.returncode == 0, errors + output
        receipts = re.findall(r"(?:minor|major|full) +files \d+→\d+  deletes \d+→\d+  rows ([\d,]+) = \1 ✓", output)
        if receipts and counts_after(output, "equality delete files")[0] > 0:
            break
    assert receipts, output
    written, _, after = counts_after(output, "data files")
    assert after < written
    assert counts_after(output, "equality delete files")[0] > 0
    assert counts_after(output, "equality delete files")[2] == 0
    assert counts_after(output, "position delete files")[2] == 0
    assert re.search(r"rows ([\d,]+) = \1 ✓  checksum ([0-9a-f]{16}) = \2 ✓$", output, re.MULTILINE), output
    assert errors == ""
    assert list(tmp_path.glob("*/tmp/*")) == []


@pytest.mark.parametrize(
    ("number", "words"),
    # The last while pyarrow reads the data, which would take the signal for its own.
    sample(((signal.SIGINT, "planned"), (signal.SIGTERM, "planned"), (signal.SIGINT, "amoro demo in")), every=3),
)
def test_a_signal_ends_the_demo_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, words: str) -> None:
    with demo(tmp_path, "--seconds", "600") as process:
        read_until(process, words)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (128 + number, "")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_directory_that_is_not_empty_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    ended = amoro(("demo", "--directory", str(tmp_path)), {"HOME": str(tmp_path)}, tmp_path)
    assert (ended.status, f"{tmp_path} is not an empty directory" in ended.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_the_ledger_tells_lost_doubled_and_changed_rows() -> None:
    flights = generated_flights()
    ids = np.arange(10)
    rows = flights.versions(ids, np.ones_like(ids))
    ledger = Ledger()
    ledger.put(rows)
    assert ledger.compare(rows.take(pa.array(ids[::-1])))[0]
    assert not ledger.compare(rows.slice(1))[0]
    assert not ledger.compare(pa.concat_tables([rows, rows.slice(9)]))[0]
    holds, line = ledger.compare(flights.versions(ids, np.where(ids == 4, 0, 1)))
    assert (holds, "rows 10 = 10 ✓" in line, "≠" in line) == (False, True, True)
    ledger.remove([3])
    ledger.put(flights.versions(np.array([4]), np.array([2])))
    assert (len(ledger), ledger.revision(3), ledger.revision(4), ledger.revision(5)) == (9, None, 2, 1)
