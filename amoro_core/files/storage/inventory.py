"""Inventories of files, keys of paths by which they are compared, and UUIDs of tables that share a location."""

import gzip
import json
import re
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from amoro_core.errors import DataFileMissing, InvalidArgument, TableRefused
from amoro_core.files.storage.io import FileAccess, translated
from amoro_core.files.storage.stores import PAGE, each_at_once
from amoro_core.model.maintenance import EVERYWHERE, KeyRange, StoredFile
from amoro_core.model.paths import key_in_place, normalise, path_aliases
from amoro_core.model.text_sanitizing import briefly

#: Accepted names of each column; the first one present counts.
_NAMES = {"path": ("path", "file_path"), "size": ("size", "length"), "mtime": ("mtime", "last_modified")}
_WAY_OUT = "An inventory is a Parquet file, or a CSV file with a header, with the columns path, size and mtime."


def inventory(access: FileAccess, path: str, within: KeyRange = EVERYWHERE) -> Iterator[Sequence[StoredFile]]:
    """The files of an inventory whose paths lie in the range, in pages, each by its normalised path.

    Times are timestamps (in UTC without a zone), ISO 8601 strings, or milliseconds since the epoch; they may be null.
    Raises InvalidArgument for what is no inventory, DataFileMissing, and TableRefused("location").
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
    chosen = {wanted: next((name for name in spellings if name in names), "") for wanted, spellings in _NAMES.items()}
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


def _moment(value: Any) -> datetime | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError as error:
            raise InvalidArgument(f"{value!r} is not a modification time", hint=_WAY_OUT) from error
    result: datetime = value
    return result.replace(tzinfo=UTC) if result.tzinfo is None else result.astimezone(UTC)


#: Iceberg's writers put the UUID first; of any other file the whole is read.
_BEGINNING = 4096
_UUID_FIRST = re.compile(rb'\s*\{\s*(?:"format-version"\s*:\s*\d+\s*,\s*)?"table-uuid"\s*:\s*"([0-9A-Fa-f-]{36})"')


def table_uuids(access: FileAccess, paths: Iterable[str]) -> dict[str, str]:
    """The table UUID in each metadata file, "" for none. Raises CatalogUnavailable or WorkFailed for a failed read."""
    return each_at_once(lambda path: _uuid_in(access, path), paths)


def _uuid_in(access: FileAccess, path: str) -> str:
    try:
        with translated(path), access.open_input(path) as stream:
            beginning = bytes(stream.read(_BEGINNING))
        if result := _UUID_FIRST.match(beginning):
            return result[1].decode()
        whole = access.read_bytes(path)
        document = json.loads(gzip.decompress(whole) if whole.startswith(b"\x1f\x8b") else whole)
        return str(document.get("table-uuid") or "") if isinstance(document, dict) else ""
    except (DataFileMissing, TableRefused):  # no table's, by now or at all
        return ""
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile):
        return ""


Keys = NDArray[np.uint64]
#: Scheme and authority.
StorageRoot = tuple[str, str]
NO_KEYS: Keys = np.empty(0, np.uint64)


def key_of(spelling: str) -> int:
    """The key of one spelling, the same on every machine. A collision can only keep a file, never delete one."""
    return int.from_bytes(blake2b(spelling.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def keys_of(paths: Iterable[str]) -> Keys:
    """The keys of all spellings of these paths, sorted and distinct."""
    spelled = _Spelled()
    return np.unique(np.fromiter((key for path in paths for key in spelled(path)), np.uint64))


def keys_in_ranges(paths: Iterable[str], cuts: Sequence[str]) -> dict[int, Keys]:
    """The keys of all spellings by range `n`: after `cuts[n - 1]`, and not after `cuts[n]`; the cuts are sorted."""
    spelled = _Spelled()
    result: defaultdict[int, list[int]] = defaultdict(list)
    for path in paths:
        for text in spelled.texts(path):
            result[bisect_left(cuts, text)].append(key_of(text))
    return {at: np.unique(np.array(keys, np.uint64)) for at, keys in result.items()}


def merged(parts: Iterable[Keys]) -> Keys:
    """The keys of all parts, sorted and distinct."""
    return np.unique(np.concatenate([NO_KEYS, *parts]))


def seeking(keys: Keys) -> Callable[[str], bool]:
    """A predicate: whether a path has one of the sorted keys, in any of its spellings."""
    spelled = _Spelled()
    return lambda path: bool(_hits(keys, np.array(spelled(path), np.uint64)))


def seeking_places(columns: Mapping[StorageRoot, Keys]) -> Callable[[Sequence[str]], list[frozenset[StorageRoot]]]:
    """A function that returns, for each of many paths, the places whose sorted keys include one of its spellings."""
    spelled = _Spelled()

    def places_of(paths: Sequence[str]) -> list[frozenset[StorageRoot]]:
        keyed = [(at, key) for at, path in enumerate(paths) for key in spelled(path)]
        requested = np.fromiter((key for _, key in keyed), np.uint64)
        answers = [_NOWHERE] * len(paths)
        for place, keys in columns.items():
            here = frozenset((place,))
            for hit in _hits(keys, requested):
                at = keyed[hit][0]
                answers[at] = answers[at] | here if answers[at] else here
        return answers

    return places_of


class _Spelled:
    """The keys of a path's spellings; those of directories, of which there are few, are cached."""

    def __init__(self) -> None:
        self._directories: dict[str, tuple[str, ...]] = {}

    def __call__(self, path: str) -> list[int]:
        return [key_of(text) for text in self.texts(path)]

    def texts(self, path: str) -> Sequence[str]:
        """The spellings themselves: those of `looser_spellings`."""
        directory, _, name = path.rpartition("/")
        if not name.isascii() or "%" in name or name in ("", ".", ".."):
            return path_aliases(path)
        aliases = self._directories.get(directory)
        if aliases is None:
            if len(self._directories) >= _DIRECTORIES:
                self._directories.clear()
            aliases = tuple(f"{alias.rstrip('/')}/" for alias in path_aliases(directory or "/"))
            self._directories[directory] = aliases
        return [alias + name for alias in aliases]


#: The maximum of directories whose spellings are cached: with hashes in paths, each file has its own directory.
_DIRECTORIES = 10_000
_NOWHERE: frozenset[StorageRoot] = frozenset()


def _hits(keys: Keys, requested: Keys) -> list[int]:
    """The positions in `requested` of those that are among the keys."""
    if not len(keys):
        return []
    at = np.minimum(np.searchsorted(keys, requested), len(keys) - 1)
    result: list[int] = np.flatnonzero(keys[at] == requested).tolist()
    return result
