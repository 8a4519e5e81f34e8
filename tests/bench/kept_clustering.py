"""How much of what is clustered is committed beside another writer: `python -m tests.bench.kept_clustering`.

40 files of 4 MB as one group of 160 MB, targets of 16 MB, one thread that puts the whole table in order again and
again, by turns in two orders, and a writer that deletes one random row each second: by position in format 2, by vector
in format 3. By `carry-over` and by `give-way`. Prints JSON: bytes rewritten and committed, their ratio, how the
processes ended, rows carried over, rows found hidden in outputs (each compared with the row of an input, raw), and
writes that failed though they were tried ten times; CPU seconds of looking rows up, and of clustering and committing in
all. The rows are compared at the end.
"""

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

from amoro_core.files.row_lookup import Place
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.commits import Group
from amoro_core.positions import PositionSet
from tests.services.kept_work import Kept, Writer, beside, cluster_for, made_table, require_rows
from tests.services.world import World

Positions = Mapping[int, PositionSet]
PAUSE_S = 1.0
KEY = "self-optimizing.cluster.update-strategy"


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each run")
    parser.add_argument("--strategies", nargs="+", default=["carry-over", "give-way"])
    parser.add_argument("--formats", nargs="+", type=int, choices=(2, 3), default=[2, 3])
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for version in given.formats:
        for strategy in given.strategies:
            print(json.dumps(_run(version, strategy, given.seconds)), flush=True)


def _run(version: int, strategy: str, seconds: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        world = made_table(Path(directory), version=version, more={KEY: strategy})
        try:
            other = Writer(world.catalog.load_table("db.t"), seed=1)
            spent = _Spent()
            kept = beside(world, other.delete, PAUSE_S, seconds, spent.cluster_for)
            require_rows(world, other)
        finally:
            world.close()
    return {
        "format": version,
        "strategy": strategy,
        "rewritten_bytes": kept.rewritten,
        "committed_bytes": kept.committed,
        "kept": round(kept.share, 3),
        "ended": {status.value: count for status, count in sorted(kept.outcomes.items())},
        "rows_carried_over": kept.carried,
        "rows_hidden": kept.hidden,
        "writes": other.done,
        "failed_writes": other.failed,
        "look_up_cpu_s": round(spent.looking_up_s, 2),
        "cpu_s": round(spent.all_s, 2),
    }


class _Spent:
    """CPU time of the thread that clusters and commits, in seconds."""

    def __init__(self) -> None:
        self.looking_up_s = 0.0
        self.all_s = 0.0

    def cluster_for(self, world: World, is_over: Callable[[], bool]) -> Kept:
        """Like `tests.services.kept_work.cluster_for`."""
        look_up = IcebergTable.look_up

        def timed(table: IcebergTable, group: Group, wanted: Positions, taken: Positions) -> Mapping[Place, Place]:
            begun = time.thread_time()
            try:
                return look_up(table, group, wanted, taken)
            finally:
                self.looking_up_s += time.thread_time() - begun

        begun = time.thread_time()
        with patch.object(IcebergTable, "look_up", timed):
            kept = cluster_for(world, is_over)
        self.all_s += time.thread_time() - begun
        return kept


if __name__ == "__main__":
    main()
