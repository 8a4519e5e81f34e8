"""What the other engine does in format 3 alone. Tables of format 3 are made and written by `writer` like others."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlparse

import sqlalchemy
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel

# pyiceberg writes the metadata of formats 1 and 2 only.
TableMetadataV3.model_dump_json = IcebergBaseModel.model_dump_json


def upgrade(table: Table) -> Table:
    """The table of a SQL catalog in format 3, as its own engine upgrades it: no file has row ids before a commit."""
    table.refresh()
    before = table.metadata_location
    said = json.loads(Path(urlparse(before).path).read_text())
    if said["format-version"] == 1:
        said = {key: value for key, value in said.items() if key not in ("schema", "partition-spec")}
        said["last-sequence-number"] = 0
    said |= {"format-version": 3, "next-row-id": 0}
    said["metadata-log"] = [
        *said.get("metadata-log", []),
        {"metadata-file": before, "timestamp-ms": said["last-updated-ms"]},
    ]
    number = int(before.rpartition("/")[2].split("-")[0]) + 1
    after = f"{before.rpartition('/')[0]}/{number:05}-{said['table-uuid']}.metadata.json"
    Path(urlparse(after).path).write_text(json.dumps(said))
    with table.catalog.engine.begin() as connection:
        changed = connection.execute(
            sqlalchemy.text("UPDATE iceberg_tables SET metadata_location = :after WHERE metadata_location = :before"),
            {"after": after, "before": before},
        )
        if changed.rowcount != 1:
            raise ValueError(f"the table {table.name()} is not of this catalog")
    return table.refresh()
