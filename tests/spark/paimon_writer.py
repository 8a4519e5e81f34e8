"""Writes and reads Paimon tables by pypaimon, in an environment of its own: `paimon_writer.py WAREHOUSE TABLE COMMAND`.

`make OPTIONS…` makes a table, by seven commits. `write STOP` commits until the file STOP exists; `read` reads. Each
prints the rows, as JSON, that it has written or read. A table is keyed unless its name begins with `log`.
"""

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string()), pa.field("v", pa.string())])
COMMITS, KEYS = 7, 40


def commit(table, number: int) -> list[tuple[int, str, str]]:
    ids = [(number * 7 + at) % KEYS for at in range(20)]
    rows = [(one, f"d{one % 2}", f"{number}") for one in ids]
    builder = table.new_batch_write_builder()
    write, committing = builder.new_write(), builder.new_commit()
    columns = list(zip(*rows, strict=True))
    write.write_arrow(pa.table(dict(zip(ROWS.names, columns, strict=True)), schema=ROWS))
    committing.commit(write.prepare_commit())
    write.close()
    committing.close()
    return rows


def main(warehouse: str, name: str, command: str, *arguments: str) -> None:
    catalog, is_keyed = CatalogFactory.create({"warehouse": warehouse}), not name.startswith("log")
    if command == "make":
        catalog.create_database("db", True)
        keys = {"primary_keys": ["id", "day"]} if is_keyed else {}
        options = dict(one.split("=") for one in arguments)
        schema = Schema.from_pyarrow_schema(ROWS, partition_keys=["day"], options=options, **keys)
        catalog.create_table(f"db.{name}", schema, False)
    table = catalog.get_table(f"db.{name}")
    if command == "read":
        reading = table.new_read_builder()
        found = reading.new_read().to_arrow(reading.new_scan().plan().splits()).to_pylist()
        rows = [(one["id"], one["day"], one["v"]) for one in found]
    else:
        rows, number, first = [], 0 if command == "make" else COMMITS, 0 if command == "make" else COMMITS
        while number < first + COMMITS if command == "make" else not Path(arguments[0]).exists():
            rows += commit(table, number)
            number += 1
            time.sleep(0 if command == "make" else 0.1)
    print(json.dumps(sorted(rows)), flush=True)


main(*sys.argv[1:])
