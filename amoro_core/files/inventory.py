"""Inventories: lists of files made by a store or an administrator, used instead of listing."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from amoro_core.errors import InvalidArgument
from amoro_core.files.io import FileAccess, translated
from amoro_core.files.storage import PAGE
from amoro_core.model.paths import key_in_place, normalise
from amoro_core.model.stored import EVERYWHERE, KeyRange, StoredFile
from amoro_core.model.texts import briefly

#: Accepted names of each column; the first one present counts.
_NAMES = {"path": ("path", "file_path"), "size": ("size", "length"), "mtime": ("mtime", "last_modified")}
_WAY_OUT = "An inventory is a Parquet file, or a CSV file with a header, with the columns path, size and mtime."


def inventory(access: FileAccess, path: str, within: KeyRange = EVERYWHERE) -> Iterator[Sequence[StoredFile]]:
    """The files of an inventory whose paths lie in the range, in pages, each by its normalised path.

    Times are timestamps (in UTC without a zone), ISO 8601 strings, or milliseconds since the epoch; they may be null.
    Raises InvalidArgument for a file that is no inventory or lacks a column, DataFileMissing, and
    TableRefused("location") for one that may not be read.
    """
    try:
        with translated(path), access.open_input(path) as stream:
            for batch in _batches(stream, path):
                yield from _pages(batch, within)
    except pa.ArrowException as error:
        raise InvalidArgument(f"{path} can't be read as an inventory: {briefly(str(error))}", hint=_WAY_OUT) from error


def _batches(stream: Any, path: str) -> Iterator[pa.RecordBatch]:
    if path.endswith(".parquet"):
        opened = pq.ParquetFile(stream)
        chosen = _chosen(opened.schema_arrow.names, path)
        batches = opened.iter_batches(PAGE, columns=list(chosen.values()))
    else:
        opened = pyarrow.csv.open_csv(stream)
        chosen = _chosen(opened.schema.names, path)
        batches = iter(opened)
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in chosen.values()], names=list(chosen))


def _chosen(names: Sequence[str], path: str) -> dict[str, str]:
    chosen = {wanted: next((one for one in known if one in names), "") for wanted, known in _NAMES.items()}
    if missing := [wanted for wanted, name in chosen.items() if not name]:
        raise InvalidArgument(f"the inventory {path} has no column {', '.join(missing)}", hint=_WAY_OUT)
    return chosen


def _pages(batch: pa.RecordBatch, within: KeyRange) -> Iterator[Sequence[StoredFile]]:
    times = _times(batch.column("mtime"))
    sizes = batch.column("size").cast(pa.int64())
    for start in range(0, batch.num_rows, PAGE):
        part = slice(start, start + PAGE)
        rows = zip(
            batch.column("path")[part].to_pylist(), sizes[part].to_pylist(), times[part].to_pylist(), strict=True
        )
        yield [
            StoredFile(normalise(path), size or 0, _moment(at))
            for path, size, at in rows
            if path and (within is EVERYWHERE or within.holds(key_in_place(path)))
        ]


def _times(column: pa.Array) -> pa.Array:
    if pa.types.is_integer(column.type):
        return column.cast(pa.timestamp("ms"))
    if pa.types.is_timestamp(column.type):
        return pc.cast(column, pa.timestamp("us", column.type.tz), safe=False)
    return column.cast(pa.string())


def _moment(said: Any) -> datetime | None:
    if said is None or said == "":
        return None
    if isinstance(said, str):
        try:
            said = datetime.fromisoformat(said.strip())
        except ValueError as error:
            raise InvalidArgument(f"{said!r} is not a modification time", hint=_WAY_OUT) from error
    found: datetime = said
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
