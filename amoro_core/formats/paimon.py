"""Paimon tables, read from their own metadata without a JVM.

`schema/schema-N` and `snapshot/snapshot-N` are JSON; the newest has the greatest number, whatever the hint
`snapshot/LATEST` says. A snapshot names two lists of manifests, which add and delete files; lists and manifests are
Avro files in `manifest/`. The layout is that of Paimon 1.4.2's source.
"""

import json
import re
import struct
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import cached_property
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

from amoro_core.errors import DataFileMissing, UnreadableFile
from amoro_core.files.avro import open_avro
from amoro_core.files.storage.stores import each_at_once
from amoro_core.formats.directories import TableDirectories, TableDirectory
from amoro_core.formats.ports import Role
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.table_services import (
    COMPLETED,
    Bucket,
    NamedColumn,
    StoredFiles,
    TableContents,
    TimelineEntry,
    snapshots_since_compaction,
)
from amoro_core.model.tables import TableFacts, TableIdentifier
from amoro_core.model.text_sanitizing import briefly

T = TypeVar("T")
_File = tuple[bytes, int, int, str]  # partition, bucket, level, name

#: How many snapshots are read: of the newest ones, and of the oldest ones.
_NEWEST, _OLDEST = 100, 20
#: Tables whose files are remembered while their snapshot is the same.
_REMEMBERED = 200
#: What keeps a snapshot: the prefix of its files in a folder of that name, and the key of the snapshot.
_KEEPERS = (("tag", "tag-", "id"), ("consumer", "consumer-", "nextSnapshot"))
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error, OverflowError, RecursionError)
_NUMBERS = {
    "BOOLEAN": "<?", "TINYINT": "<b", "SMALLINT": "<h", "INT": "<i", "BIGINT": "<q", "FLOAT": "<f", "DOUBLE": "<d",
    "DATE": "<i", "TIME": "<i",
}  # fmt: skip
_COMPACT_DIGITS, _COMPACT_FRACTION = 18, 3  # decimals and timestamps up to these take eight bytes


class PaimonTable:
    """A Paimon table as loaded at one moment."""

    roles = frozenset({Role.SERVICE})

    def __init__(self, directory: TableDirectory) -> None:
        """Raises UnreadableFile, DataFileMissing."""
        self._directory = directory
        schemas, self._snapshot_ids = self._numbers("schema"), self._numbers("snapshot")
        self._newest = f"schema/schema-{max(schemas, default=0)}"
        with self._reading(self._newest) as schema:
            self._columns = [NamedColumn(str(one["name"]), _type_name(one["type"])) for one in schema["fields"]]
            types = {column.name: column.type for column in self._columns}
            self._partition_types = {str(name): types[name] for name in schema["partitionKeys"]}
            self._keys = tuple(map(str, schema["primaryKeys"]))
            options = {str(key): str(value) for key, value in schema["options"].items()}
            numbers = int(schema.get("version", 1)), int(schema["id"]), int(schema["highestFieldId"])
        with self._reading(f"schema/schema-{min(schemas, default=0)}") as schema:
            # A table has no id. One that is dropped and created again differs in the time of its first schema.
            uuid = str(uuid5(NAMESPACE_URL, f"{directory.location}#{schema.get('timeMillis')}"))
        self._newest = f"snapshot/snapshot-{self._snapshot_ids[-1]}" if self._snapshot_ids else self._newest
        head = self._snapshot_ids[-1] if self._snapshot_ids else None
        self.facts = TableFacts(
            identifier=directory.identifier,
            uuid=uuid,
            format_version=numbers[0],
            location=directory.location,
            metadata_location=f"{directory.location}/{self._newest}",
            snapshot_id=head,
            sequence_number=head or 0,
            properties=options,
            format=PaimonFormat.name,
            schema_id=numbers[1],
            last_column_id=numbers[2],
        )

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        """Refuses nothing; its services refuse what they don't support."""

    def skip_reason(self) -> None:
        """Nothing is skipped."""

    def io_properties(self) -> Mapping[str, str]:
        """Properties of its storage."""
        return self._directory.storage

    def timeline(self) -> tuple[TimelineEntry, ...]:
        """The oldest and the newest snapshots; before them tags and consumers, with the snapshot that each keeps."""
        return self._timeline

    @cached_property
    def _timeline(self) -> tuple[TimelineEntry, ...]:
        entries = []
        for folder, prefix, key in _KEEPERS:
            for name in self._names(folder, prefix):
                with suppress(DataFileMissing), self._reading(f"{folder}/{prefix}{name}") as document:
                    entries.append(TimelineEntry(str(document[key]), f"{folder} {name}", COMPLETED))
        numbers = sorted({*self._snapshot_ids[:_OLDEST], *self._snapshot_ids[-_NEWEST:]})
        return (*entries, *filter(None, each_at_once(self._snapshot, map(str, numbers)).values()))

    def _snapshot(self, number: str) -> TimelineEntry | None:
        with suppress(DataFileMissing), self._reading(f"snapshot/snapshot-{number}") as one:
            time = datetime.fromtimestamp(one["timeMillis"] / 1000, UTC).isoformat()
            return TimelineEntry(number, one["commitKind"], COMPLETED, time, one["commitUser"])
        return None  # it has expired

    def contents(self) -> TableContents:
        """Its columns, files by partition, bucket and level, and timeline. Raises UnreadableFile, DataFileMissing."""
        return self._contents

    @cached_property
    def _contents(self) -> TableContents:
        buckets, fields = self._live
        levels = defaultdict[tuple[str, str, str], list[int]](list)
        for one in buckets:
            for level, size in one.files:
                levels[one.path, str(one.number), f"level {level}"].append(size)
        return TableContents(
            columns=tuple(self._columns),
            partition_columns=tuple(self._partition_types),
            files=tuple(StoredFiles(*key, len(sizes), sum(sizes)) for key, sizes in levels.items()),
            timeline=self._timeline,
            since_compaction=len(snapshots_since_compaction(self._timeline)),
            key_columns=self._keys,
            buckets=buckets,
            manifest_fields=fields,
            branches=tuple(self._names("branch", "branch-")),
        )

    def take_files_of(self, other: "PaimonTable") -> None:
        """Read no manifests if the other one, loaded before, is in the same state and has read them."""
        if other.facts == self.facts and "_live" in vars(other):
            self._live = other._live

    @cached_property
    def _live(self) -> tuple[tuple[Bucket, ...], frozenset[str]]:
        """The buckets of the newest snapshot, and the fields that have values in its manifests."""
        added, deleted, fields = dict[_File, int](), set[_File](), set[str]()
        if self._snapshot_ids:
            with self._reading(f"snapshot/snapshot-{self._snapshot_ids[-1]}") as head:
                lists, indexes = [head["baseManifestList"], head["deltaManifestList"]], [head.get("indexManifest")]
            names = self._records(lists, lambda record: str(record["_FILE_NAME"]), fields)
            for is_deleted, file, size in self._records(names, _entry, fields):
                deleted.add(file) if is_deleted else added.update({file: size})
            self._records(filter(None, indexes), lambda record: None, fields)
        files = defaultdict[tuple[bytes, int], list[tuple[int, int]]](list)
        for partition, bucket, level, name in added.keys() - deleted:
            files[partition, bucket].append((level, added[partition, bucket, level, name]))
        buckets = [Bucket(key[0], self._path_of(key[0]), key[1], tuple(sorted(some))) for key, some in files.items()]
        return tuple(sorted(buckets, key=lambda one: (one.path, one.number))), frozenset(fields)

    def _records(self, names: Iterable[str], pick: Callable[[Any], T], fields: set[str]) -> list[T]:
        """What is picked of each record of these manifests; the names of fields with values are added to `fields`."""

        def read(name: str) -> tuple[set[str], list[T]]:
            path, used, found = f"{self._directory.location}/manifest/{name}", set[str](), list[T]()
            with _parsing(path), open_avro(self._directory.access, path) as file:
                for record in file.records():
                    flat = {**record, **record.get("_FILE", {})}
                    used.update(key for key, value in flat.items() if value is not None)
                    found.append(pick(flat))
            return used, found

        every = each_at_once(read, names).values()
        fields.update(*(used for used, _ in every))
        return [one for _, found in every for one in found]

    def _path_of(self, partition: bytes) -> str:
        with _parsing(f"a partition of {self._directory.identifier}"):
            values = _values(partition[4:], tuple(self._partition_types.values()))  # behind the number of fields
            return "/".join(f"{name}={value}" for name, value in zip(self._partition_types, values, strict=True))

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self._names(folder, f"{folder}-") if name.isascii() and name.isdigit())

    def _names(self, folder: str, prefix: str) -> list[str]:
        """What follows the prefix in the names in a folder."""
        start = f"{self._directory.location}/{folder}/{prefix}"
        pages = self._directory.access.pages(f"{self._directory.location}/{folder}")
        paths = (one.path for page in pages for one in page if one.path.startswith(start))
        return sorted({path.removeprefix(start).partition("/")[0] for path in paths})

    @contextmanager
    def _reading(self, name: str) -> Iterator[dict[str, Any]]:
        """The JSON document; what the block does not find in it is an error of the file."""
        path = f"{self._directory.location}/{name}"
        content = self._directory.access.read_bytes(path)
        with _parsing(path):
            yield json.loads(content)


class PaimonFormat:
    """Paimon tables in the directories of a warehouse, or in a Hive metastore."""

    name = "paimon"

    def __init__(self) -> None:
        directories = TableDirectories(self.name, ("schema/schema-0",), _is_paimon)
        self.check, self.list_tables, self._find = directories.check, directories.list_tables, directories.find
        self._loaded = OrderedDict[TableIdentifier, PaimonTable]()

    def commits_refused(self, catalog: CatalogConfig) -> None:
        """Refuses nothing: Paimon commits."""

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> PaimonTable:
        """Its present state. Raises TableNotFound, UnreadableFile, DataFileMissing."""
        table, before = PaimonTable(self._find(catalog, identifier)), self._loaded.pop(identifier, None)
        if before is not None:
            table.take_files_of(before)
        self._loaded[identifier] = table
        while len(self._loaded) > _REMEMBERED:
            self._loaded.popitem(last=False)
        return table


def _is_paimon(parameters: Mapping[str, str]) -> bool:
    handler = parameters.get("storage_handler", "")
    return parameters.get("table_type", "").lower() == "paimon" or handler.startswith("org.apache.paimon.")


def _entry(record: Mapping[str, Any]) -> tuple[bool, _File, int]:
    """Whether a manifest's record deletes its file, which file it is, and the file's size in bytes."""
    identity = record["_PARTITION"], record["_BUCKET"], record["_LEVEL"], record["_FILE_NAME"]
    return record["_KIND"] != 0, identity, record["_FILE_SIZE"]


@contextmanager
def _parsing(path: str) -> Iterator[None]:
    try:
        yield
    except _MALFORMED as error:
        raise UnreadableFile(f"{path} is not what Paimon writes: {briefly(repr(error))}") from error


def _type_name(kind: Any) -> str:
    """A type as SQL writes it; nested ones are objects in JSON."""
    if isinstance(kind, str):
        return kind
    word, _, rest = kind["type"].partition(" ")
    parts = [_type_name(kind[key]) for key in ("key", "value", "element") if key in kind]
    parts += [f"{one['name']} {_type_name(one['type'])}" for one in kind.get("fields", ())]
    return f"{word}<{', '.join(parts)}> {rest}".rstrip()


def _values(row: bytes, kinds: Sequence[str]) -> Iterator[str]:
    """The values of a BinaryRow as text. It is a byte, a bit for each null, eight bytes for each value, and the rest of
    longer values."""
    start = (len(kinds) + 71) // 64 * 8
    for at, kind in enumerate(kinds):
        is_null = row[1 + at // 8] >> at % 8 & 1
        cell = row[start + 8 * at : start + 8 * at + 8]
        yield "__DEFAULT_PARTITION__" if is_null else _value(row, cell, kind.upper().removesuffix(" NOT NULL"))


def _value(row: bytes, cell: bytes, kind: str) -> str:
    word, limits = re.split(r"[( ]", kind)[0], [int(digits) for digits in re.findall(r"\d+", kind)]
    [number], (low, high) = struct.unpack("<q", cell), struct.unpack("<ii", cell)
    if word in _NUMBERS:
        value = struct.unpack_from(_NUMBERS[word], cell)[0]
        return str(date(1970, 1, 1) + timedelta(value) if word == "DATE" else value)
    if word.startswith("TIMESTAMP"):
        is_compact = limits and limits[0] <= _COMPACT_FRACTION
        millis, nanos = (number, 0) if is_compact else (struct.unpack_from("<q", row, high)[0], low)
        return (datetime(1970, 1, 1) + timedelta(milliseconds=millis, microseconds=nanos // 1000)).isoformat()
    if word == "DECIMAL":
        is_compact = not limits or limits[0] <= _COMPACT_DIGITS
        unscaled = number if is_compact else int.from_bytes(row[high : high + low], "big", signed=True)
        return str(Decimal(unscaled).scaleb(-limits[1] if len(limits) > 1 else 0, Context(prec=76)))
    content = cell[: cell[7] & 0x7F] if cell[7] & 0x80 else row[high : high + low]
    return content.hex() if "BINARY" in word or word == "BYTES" else content.decode()
