"""The rows of Parquet files, whatever their order and their files: how many, and the sums of their hashes.

DuckDB makes them in a process of its own: what a bench's process ever had in memory counts as the peak of those that
it starts later.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: The name of the sum over whole rows: with the columns' sums alone, values could have moved to other rows.
WHOLE = "whole rows"


@dataclass(frozen=True, slots=True)
class Rows:
    """What rows are compared by."""

    count: int
    types: dict[str, str]  # DuckDB's, by column
    sums: dict[str, int]  # of hashes, by column and of whole rows


def read_rows(paths: Iterable[str | Path], where: str = "true", like: Rows | None = None) -> Rows:
    """The rows that meet the condition in SQL, which may name `filename` and `file_row_number`.

    Values are cast to the types of `like`, with which they are to be compared: Polars writes UUIDs as bytes.
    """
    asked = {"paths": sorted(map(str, paths)), "where": where, "types": like.types if like else {}}
    command = [sys.executable, str(Path(__file__).resolve())]
    done = subprocess.run(command, input=json.dumps(asked), stdout=subprocess.PIPE, check=True, text=True)
    return Rows(**json.loads(done.stdout))


def check_rows(name: str, expected: Rows, paths: Iterable[str | Path]) -> None:
    """End the bench if these files have other rows than are expected."""
    if wrong := difference(expected, read_rows(paths, like=expected)):
        raise SystemExit(f"{name} has not written what was to be written: {wrong}")


def check_count(name: str, expected: Rows, paths: Iterable[str | Path]) -> None:
    """The same by the footers alone, at no expense."""
    import pyarrow.parquet as pq

    if (count := sum(pq.read_metadata(path).num_rows for path in paths)) != expected.count:
        raise SystemExit(f"{name} has written {count:,} rows instead of {expected.count:,}")


def difference(expected: Rows, found: Rows) -> str:
    """Which columns are not equal; empty if all are."""
    if expected.count != found.count:
        return f"{found.count:,} rows instead of {expected.count:,}"
    names = dict.fromkeys((*expected.sums, *found.sums))
    return ", ".join(name for name in names if expected.sums.get(name) != found.sums.get(name))


def _hashed(paths: list[str], where: str, types: dict[str, str]) -> Rows:
    import duckdb

    db: Any = duckdb.connect()
    db.execute("SET enable_progress_bar = false")  # it goes to stdout
    described = db.execute("DESCRIBE SELECT * FROM read_parquet($1)", [paths]).fetchall()
    found = {name: kind for name, kind, *_ in described}
    values = [f'CAST("{name}" AS {types.get(name, kind)})' for name, kind in found.items()]
    sums = ", ".join(f"sum(hash({value}))" for value in (*values, ", ".join(values)))
    query = f"SELECT count(*), {sums} FROM read_parquet($1) WHERE {where}"
    count, *hashes = db.execute(query, [paths]).fetchone()
    return Rows(count, found, dict(zip((*found, WHOLE), (int(one or 0) for one in hashes), strict=True)))


if __name__ == "__main__":
    print(json.dumps(asdict(_hashed(**json.load(sys.stdin)))))
