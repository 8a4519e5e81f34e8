"""Plans of clustering: random tables until nothing is left to do, tables that grow, and columns that are chosen."""

from __future__ import annotations

from collections import Counter

from tests.unit.planning.clustering.random_tables import arrivals, changes_of_choice, random_table

NAME = "clustering"
WHAT = (
    "Fifty random tables (`tests/unit/planning/clustering/random_tables.py`) are planned and put in order by a model "
    "of the executor until there is nothing to do. A mismatch: more than two plans. Then sixty days of arrivals at one "
    "table: more than 8 bytes written for each that arrived, or a point query that meets more than 4 times the files "
    "of a table clustered at once. And sixty days of queries on columns that chance chooses: `auto` takes other ones."
)
TARGETS = {"tables": 500, "days": 600}
SECONDS = 60.0
REPLAYS = True

TABLES, DAYS = 50, 60


def run(seed: int, totals: Counter[str]) -> None:
    for number in range(seed * TABLES, (seed + 1) * TABLES):
        table = random_table(number)
        assert len(table.settle()) <= 2, f"table {number} needs more than two plans"
        totals["tables"] += 1
    columns = ("a", "b", "c")[: 2 + seed % 2]
    table, worst = arrivals(columns, DAYS, 8 * (1 + seed % 4), ("anywhere", "time")[seed // 2 % 2], seed)
    assert table.written <= 8 * table.arrived, (
        f"{table.written / table.arrived:.1f} bytes written for each that arrived"
    )
    assert worst <= 4, f"a point query meets {worst:.1f} times the files"
    totals["days"] += DAYS
    changes = changes_of_choice(seed)
    assert changes == 0, f"other columns were chosen {changes} times"
    totals["days of queries"] += DAYS
