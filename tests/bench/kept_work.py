"""How much of what is rewritten is committed beside another writer: `python -m tests.bench.kept_work`.

40 files of 4 MB, targets of 16 MB, one thread that rewrites the whole table again and again, and a writer that
deletes one random row each second, merges three each five seconds, or replaces a file each ten seconds; each with
`self-optimizing.rebase.enabled` and without. Prints JSON: bytes rewritten and committed, their ratio, how the processes
ended, rows carried over, and writes that failed though they were tried ten times. The rows are compared at the end.
"""

import argparse
import json
import logging
import tempfile
from pathlib import Path

from tests.services.kept_work import Writer, beside, made_table, require_rows

WRITERS = {"delete": 1.0, "merge": 5.0, "replace": 10.0}


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each run")
    parser.add_argument("--writers", nargs="+", choices=WRITERS, default=list(WRITERS))
    parser.add_argument("--version", type=int, choices=(2, 3), default=2, help="of the table's format")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for deed in given.writers:
        for rebase in (True, False):
            print(json.dumps(_run(deed, given.seconds, given.version, rebase=rebase)), flush=True)


def _run(deed: str, seconds: float, version: int, *, rebase: bool) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        world = made_table(Path(directory), rebase=rebase, version=version)
        try:
            other = Writer(world.catalog.load_table("db.t"), seed=1)
            kept = beside(world, getattr(other, deed), WRITERS[deed], seconds)
            require_rows(world, other)
        finally:
            world.close()
    return {
        "writer": deed,
        "format_version": version,
        "rebase": rebase,
        "rewritten_bytes": kept.rewritten,
        "committed_bytes": kept.committed,
        "kept": round(kept.share, 3),
        "ended": {status.value: count for status, count in sorted(kept.outcomes.items())},
        "rows_carried_over": kept.carried,
        "writes": other.done,
        "failed_writes": other.failed,
    }


if __name__ == "__main__":
    main()
