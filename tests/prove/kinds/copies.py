"""Random files of several writers, copied by tasks and read by other engines."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from tests.rewrite.random_copies import copy_files

NAME = "copies"
WHAT = (
    "Forty tasks of two to four random files each, written by pyarrow, DuckDB, Polars and DataFusion (arrow-rs) with "
    "random columns of every type, codecs, encodings, pages, indexes, checksums, bloom filters and row groups, some "
    "without rows or statistics, are rewritten with position deletes by copying what can be copied "
    "(`tests/rewrite/random_copies.py`). A mismatch: other rows than before for pyarrow, DuckDB or Polars, another "
    "number of rows for a condition on them, for pyarrow, DuckDB or DataFusion, or metrics that do not hold. The first "
    "batch is part of `make test`."
)
TARGETS = {"files": 500}
SECONDS = 15.0
REPLAYS = True

TASKS = 40


def run(seed: int, totals: Counter[str]) -> None:
    for number in range(seed * TASKS, (seed + 1) * TASKS):
        with tempfile.TemporaryDirectory(prefix="amoro-copies-") as made:
            copy_files(Path(made), number, totals)
        totals["tasks"] += 1
