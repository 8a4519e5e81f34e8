"""`amoro verify`, as a user runs it after `amoro optimize`."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.processes import Installation
from tests.acceptance.tables import messy_table, name_of
from tests.engine import oracle, writer
from tests.engine.builders import row
from tests.engine.parquet_rows import local_path


def test_what_was_optimized_is_proven_row_by_row_and_damage_is_found(shared: Installation) -> None:
    table = messy_table(shared.catalog)
    name = name_of(table)
    untouched = shared.ask("verify", name)
    assert (untouched["sound"], untouched["comparisons"]) == (True, [])
    base = table.refresh().metadata.current_snapshot_id
    assert shared.run("optimize", name, "--type", "full").status == 0
    ours = table.refresh().metadata.current_snapshot_id
    (rewritten,) = (Path(local_path(file.path)) for file in oracle.live_files(table))
    writer.append(table, [row(1000)])

    proven = shared.run("verify", name)
    assert proven.status == 0, proven.stderr
    assert "rows   59 = 59 ✓ none was lost, added or changed" in proven.stdout
    (comparison,) = shared.ask("verify", name)["comparisons"]
    assert (comparison["before"], comparison["after"], comparison["rows_after"]) == (base, ours, 59)

    content = bytearray(rewritten.read_bytes())
    content[20] ^= 1
    rewritten.write_bytes(content)
    damaged = shared.run("verify", name)
    assert damaged.status == 1
    assert rewritten.name in damaged.stdout
    assert damaged.said[0] == f"Error: {name} did not pass the verification [AMORO-1011]"
    unknown = shared.run("verify", name, "--before", "17")
    assert (unknown.status, unknown.stdout) == (3, "")
    assert "snapshot 17 is not one of those that the table has [AMORO-3008]" in unknown.stderr
