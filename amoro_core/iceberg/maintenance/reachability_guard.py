"""The guard before each deletion: which files a table still needs, by a reader of its own."""

import io
import json
import os.path
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from amoro_core.errors import AmoroError, CatalogUnavailable, CommitConflict, DataFileMissing, UnreadableFile
from amoro_core.iceberg.catalog.errors import error_text
from amoro_core.model.paths import is_local, normalise, path_aliases


def records(file_io: FileIO, path: str, noun: str, wanted: set[int], length: int | None = None) -> Iterator[Any]:
    """The records of an Avro file: the wanted fields by id, nested ones flattened."""
    import fastavro  # slow to load, and few commands delete files

    try:
        with file_io.new_input(path).open() as stream:
            data = stream.read()
        if length is not None and len(data) != length:
            raise ValueError(f"it has {len(data)} bytes, and its list says {length}")
        source = io.BytesIO(data)
        written = json.loads(fastavro.block_reader(source).metadata["avro.schema"])
        chosen, read = _chosen(written, wanted)
        source.seek(0)
        yield from map(read, fastavro.reader(source, reader_schema=chosen))
    except AmoroError:
        raise
    except FileNotFoundError as error:
        raise DataFileMissing(f"the {noun} {path} does not exist") from error
    except OSError as error:
        raise CatalogUnavailable(f"the {noun} {path} can't be read: {error_text(error)}") from error
    except Exception as error:  # whatever a decoder raises means a broken file
        raise UnreadableFile(f"the {noun} {path} can't be read: {error_text(error)}") from error


def _chosen(written: Any, wanted: set[int]) -> tuple[Any, Callable[[Any], dict[int, Any]]]:
    """The schema with the wanted fields alone, and a function that maps its records to values by field id."""
    fields: list[Any] = []
    plain: list[tuple[str, int]] = []
    inner: list[tuple[str, Callable[[Any], dict[int, Any]]]] = []
    for field in written["fields"]:
        if field.get("field-id") not in wanted:
            continue
        kind = field["type"]
        if isinstance(kind, dict) and kind.get("type") == "record":
            narrowed, read = _chosen(kind, wanted)
            fields.append({"name": field["name"], "type": narrowed})
            inner.append((field["name"], read))
        else:
            fields.append({"name": field["name"], "type": kind})
            plain.append((field["name"], field["field-id"]))

    def values(record: Any) -> dict[int, Any]:
        result = {number: record[name] for name, number in plain}
        for name, read in inner:
            result |= read(record[name])
        return result

    return {**written, "fields": fields}, values


#: Field ids of the specification.
_MANIFEST_PATH, _MANIFEST_LENGTH, _COUNTS = 500, 501, (504, 505, 506)
_STATUS, _DATA_FILE, _FILE_PATH = 0, 2, 100
_EXISTING, _ADDED, _DELETED = 0, 1, 2
#: A metadata file of a table that is a directory; every such file and the version hint then belong to the table.
_VERSION = re.compile(r"v\d+(\.gz)?\.metadata\.json(\.gz)?")
_HINT = "version-hint.text"


class Guard:
    """The guard of one table during a sweep; each call reloads the table and reads only new manifests.

    Every call raises CommitConflict when the name belongs to another table or the table has moved; CatalogUnavailable
    for a state older than an earlier one; DataFileMissing and UnreadableFile for a manifest or list that is gone,
    truncated or broken; and what loading the table raises.
    """

    def __init__(self, load: Callable[[], Table], seen: Table, sequence_number: int = 0) -> None:
        """`seen`: a state of the table; `sequence_number`: its last one when the deletion was planned."""
        self._load = load
        self._seen = seen
        self._sequence_number = sequence_number
        self._lists: dict[str, tuple[str, ...]] = {}  # thousands of them name the same manifests
        self._manifests: dict[str, array[int]] = {}
        self._keys = _Keys()

    def reachable(self, paths: Iterable[str]) -> Mapping[str, str]:
        """Those of the files that the table references now, from any snapshot, each with the reason.

        A file is referenced if the metadata names it, or if it is live in any manifest, in any spelling of its path.
        """
        self._keys = _Keys()
        table = self._renewed()
        result: dict[str, str] = {}
        wanted: defaultdict[int, list[str]] = defaultdict(list)
        for path in dict.fromkeys(paths):
            for key in self._keys(path):
                wanted[key].append(path)
        for name, why in _named(table.metadata, table.metadata_location):
            result.update((path, why) for key in self._keys(name) for path in wanted.get(key, ()))
        result |= {path: why for key in wanted for path in wanted[key] if (why := _of_directory(table, path))}
        keys = set(wanted)
        for manifest, live in self._manifests.items():
            if manifest_keys := keys.intersection(self._keys(manifest)):
                result.update((path, "a manifest of the table") for key in manifest_keys for path in wanted[key])
            result.update((path, f"live in {manifest}") for key in keys.intersection(live) for path in wanted[key])
        return result

    def _renewed(self) -> Table:
        """The table's present state, with its manifests read."""
        table = self._load()
        _require_later(table, self._seen)
        metadata = table.metadata
        if _last_number(metadata) < self._sequence_number:
            raise _older(table)
        lists = {snapshot.manifest_list: self._lists.get(snapshot.manifest_list) for snapshot in metadata.snapshots}
        names = {path: path for path in self._manifests}
        described: dict[str, tuple[int, int | None]] = {}
        for path, manifests in lists.items():
            if manifests is None:
                listed = dict(_manifests_in(table.io, path))
                lists[path] = tuple(names.setdefault(name, name) for name in listed)
                described.update((names[name], noun) for name, noun in listed.items())
        needed = dict.fromkeys(manifest for manifests in lists.values() for manifest in manifests or ())
        self._manifests = {
            path: self._manifests[path] if path in self._manifests else self._live_in(table.io, path, *described[path])
            for path in needed
        }
        self._lists = {path: manifests for path, manifests in lists.items() if manifests is not None}
        for snapshot in metadata.snapshots:
            self._require_files(snapshot)
        self._seen = table
        return table

    def _require_files(self, snapshot: Snapshot) -> None:
        """Raise for a snapshot whose summary counts files but whose manifests have no live ones."""
        files = (snapshot.summary.additional_properties if snapshot.summary else {}).get("total-data-files", "0")
        if str(files).strip() in ("", "0"):
            return
        if not any(len(self._manifests[path]) for path in self._lists[snapshot.manifest_list]):
            raise UnreadableFile(
                f"snapshot {snapshot.snapshot_id} says that it has {files} data files, and its manifest list "
                f"{snapshot.manifest_list} leads to none"
            )

    def _live_in(self, file_io: FileIO, path: str, length: int, entries: int | None) -> "array[int]":
        """The keys of the live files of a manifest of that length and number of entries."""
        live = array("q")
        count = 0
        for record in records(file_io, path, "manifest", {_STATUS, _DATA_FILE, _FILE_PATH}, length):
            count += 1
            if record[_STATUS] in (_EXISTING, _ADDED):
                live.extend(self._keys(record[_FILE_PATH]))
            elif record[_STATUS] != _DELETED:
                raise UnreadableFile(f"the manifest {path} has an entry with the status {record[_STATUS]}")
        if entries is not None and count != entries:
            raise UnreadableFile(f"the manifest {path} has {count} entries, and its list says {entries}")
        return live


class _Keys:
    """The keys of a path: 8-byte numbers. A collision of two paths can only keep a file, never delete one."""

    def __init__(self) -> None:
        self._directories: dict[str, tuple[str, ...]] = {}

    def __call__(self, path: str) -> list[int]:
        directory, _, name = path.rpartition("/")
        if _ORDINARY.fullmatch(name) is None:  # it may have other spellings
            return [hash(alias) for alias in (*path_aliases(path), *_without_links(path))]
        if directory not in self._directories:
            if len(self._directories) > _MOST_DIRECTORIES:
                self._directories.clear()
            # The spellings depend on the directory only: links are resolved once for each directory.
            like = f"{directory}/x"
            self._directories[directory] = tuple(alias[:-1] for alias in (*path_aliases(like), *_without_links(like)))
        return [hash(alias + name) for alias in self._directories[directory]]


_ORDINARY = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*")
_MOST_DIRECTORIES = 10_000


def _without_links(path: str) -> list[str]:
    """The local path with links resolved, if there are any."""
    if not is_local(path):
        return []
    place = normalise(path)
    directory, _, name = place.rpartition("/")
    real = os.path.realpath(directory)
    return [] if real == directory else [f"{real.rstrip('/')}/{name}"]


def _require_later(now: Table, seen: Table) -> None:
    """Raise unless the state is the one seen before or a later one."""
    new, old = now.metadata, seen.metadata
    if new.table_uuid != old.table_uuid:
        raise CommitConflict(f"the table was replaced: its UUID is {new.table_uuid}, it was {old.table_uuid}")
    if normalise(new.location) != normalise(old.location):
        raise CommitConflict(f"the table has moved to {new.location} from {old.location}")
    place, before = normalise(now.metadata_location or ""), normalise(seen.metadata_location or "")
    if place == before:
        return
    if place in {normalise(entry.metadata_file) for entry in old.metadata_log}:
        raise _older(now)
    is_before = new.last_updated_ms < old.last_updated_ms or _last_number(new) < _last_number(old)
    if is_before and before not in {normalise(entry.metadata_file) for entry in new.metadata_log}:
        raise _older(now)


def _last_number(metadata: TableMetadata) -> int:
    return 0 if metadata.format_version == 1 else metadata.last_sequence_number


def _older(table: Table) -> CatalogUnavailable:
    return CatalogUnavailable(
        f"the catalog answers with a state of {'.'.join(table.name())} that is older than one seen before",
        hint="It is retried automatically.",
    )


def _named(metadata: TableMetadata, location: str | None) -> Iterator[tuple[str, str]]:
    """The files that the metadata itself names, each with its role."""
    if location:
        yield location, "the table's metadata file"
    yield from ((entry.metadata_file, "a metadata file of the table's log") for entry in metadata.metadata_log)
    yield from ((file.statistics_path, "statistics of the table") for file in metadata.statistics)
    yield from ((item.statistics_path, "partition statistics of the table") for item in metadata.partition_statistics)
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list, f"the manifest list of snapshot {snapshot.snapshot_id}"


def _of_directory(table: Table, path: str) -> str:
    """Why a file belongs to a table that is a directory, where no catalog names the current metadata file."""
    directory, _, name = normalise(table.metadata_location or "").rpartition("/")
    where, _, wanted = normalise(path).rpartition("/")
    if where == directory and _VERSION.fullmatch(name) and (wanted == _HINT or _VERSION.fullmatch(wanted)):
        return "a version of a table that is a directory"
    return ""


def _manifests_in(file_io: FileIO, path: str) -> Iterator[tuple[str, tuple[int, int | None]]]:
    """The manifests of a list, each with its length and its number of entries, None if the list lacks it."""
    for record in records(file_io, path, "manifest list", {_MANIFEST_PATH, _MANIFEST_LENGTH, *_COUNTS}):
        counts = [record.get(count) for count in _COUNTS]
        entries = None if None in counts else sum(count for count in counts if count is not None)
        yield record[_MANIFEST_PATH], (record[_MANIFEST_LENGTH], entries)
