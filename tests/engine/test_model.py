"""Many operations in a row, and several writers at once, against a plain list of rows."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.engine import writer
from tests.engine.builders import make, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files
from tests.engine.oracle import assert_same_rows, live_rows
from tests.engine.values import rows_of


@pytest.fixture
def catalog(tmp_path: Path):
    opened = writer.make_catalog(tmp_path)
    yield opened
    opened.close()


def changed(model: list[dict[str, Any]], number: int, chance: random.Random, table: Table) -> list[dict[str, Any]]:
    """Do one random operation on the table, and return the rows that a plain list would then hold."""
    parts = ["a", "b", None]
    some = {chance.randrange(12) for _ in range(4)}
    fresh = [row(id_, chance.choice(parts), f"{number}") for id_ in sorted(some)]
    keys = {(one["id"], one["part"]) for one in fresh}
    match chance.choice(["append", "upsert", "delete", "equality", "rewrite", "global"]):
        case "append":
            writer.append(table, fresh, files=2)
            return [*model, *fresh]
        case "upsert":
            writer.upsert(table, fresh, ["id", "part"])
            return [*(one for one in model if (one["id"], one["part"]) not in keys), *fresh]
        case "delete":
            writer.delete_where(table, lambda r: r["id"] in some, per_file=chance.random() < 0.5)
            return [one for one in model if one["id"] not in some]
        case "equality":
            writer.row_delta(table, fresh[:1], [(["id", "part"], fresh)])
            return [*(one for one in model if (one["id"], one["part"]) not in keys), *fresh[:1]]
        case "rewrite":
            writer.copy_on_write(table, lambda r: r["id"] in some, lambda r: {**r, "value": "new"})
            return [{**one, "value": "new"} if one["id"] in some else one for one in model]
        case _:
            spec_id = writer.unpartitioned_spec_id(table)
            writer.row_delta(table, equality_deletes=[(["id"], [{"id": id_} for id_ in some], None, spec_id)])
            return [one for one in model if one["id"] not in some]


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_random_operations_leave_the_rows_of_a_plain_list(catalog, seed, partitioned):
    table = make(catalog)
    if partitioned:
        with table.update_spec() as update:
            update.add_identity("part")
    chance, model = random.Random(seed), []
    for number in range(12):
        model = changed(model, number, chance, table)
        assert_same_rows(rows_of(table.schema(), model), live_rows(table))


def test_concurrent_writers_all_land_exactly_once(catalog, tmp_path):
    table = make(catalog)
    writer.append(table, [row(at) for at in range(8)], files=4)
    failures: list[BaseException] = []

    def write(number: int) -> None:
        own = writer.make_catalog(tmp_path)
        try:
            mine = own.load_table("db.t")
            writer.append(mine, [row(100 + number)])
            writer.upsert(mine, [row(number, value="new")], ["id"])
            writer.delete_where(mine, lambda r: r["id"] == 4 + number)
        except BaseException as failure:
            failures.append(failure)
        finally:
            own.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    expected = [row(3), row(7), *(row(at, value="new") for at in range(3)), *(row(100 + at) for at in range(3))]
    assert live_rows(table) == rows_of(table.schema(), expected)
    assert len(table.refresh().snapshots()) == 10


def test_a_writer_whose_number_others_have_taken_on_a_branch_commits_again(catalog: SqlCatalog) -> None:
    table = make(catalog)
    writer.append(table, [row(1)])
    tries = []

    def build(head: Table) -> Change:
        tries.append(head.metadata.last_sequence_number)
        if len(tries) == 1:
            writer.append(catalog.load_table("db.t"), [row(2)], branch="other")
        return Change(tuple(write_data_files(head, [row(3)])))

    commit(table, build)
    assert len(tries) == 2
    assert_same_rows(rows_of(table.schema(), [row(1), row(3)]), live_rows(table))
