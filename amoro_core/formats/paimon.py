"""Paimon tables, read from their own metadata without a JVM.

`schema/schema-N` and `snapshot/snapshot-N` are JSON; the newest has the greatest number, whatever the hint
`snapshot/LATEST` says. A snapshot names two lists of manifests, which add and delete files; lists and manifests are
Avro files in `manifest/`. The layout is that of Paimon 1.4.2's source.
"""

import json
from base64 import b64encode
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

from amoro_core.errors import DataFileMissing, UnreadableFile
from amoro_core.files.avro import open_avro
from amoro_core.files.storage.stores import each_at_once
from amoro_core.formats.directories import DirectoryFormat, DirectoryTable, TableDirectory
from amoro_core.maintenance.table_services import snapshots_since_compaction
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.table_services import COMPLETED, FileGroup, TableContents, TimelineEntry
from amoro_core.model.tables import TableFacts, TableIdentifier
from amoro_core.model.text_sanitizing import briefly

T = TypeVar("T")
_File = tuple[str, int, int, str]  # partition in Base64, bucket, level, name

#: How many snapshots are read: of the newest ones, and of the oldest ones.
_NEWEST, _OLDEST = 100, 20
#: Tables whose files are remembered while their snapshot is the same.
_REMEMBERED = 200
#: What keeps a snapshot: the prefix of its files in a folder of that name, and the key of the snapshot.
_KEEPERS = (("tag", "tag-", "id"), ("consumer", "consumer-", "nextSnapshot"))
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class PaimonTable(DirectoryTable):
    """A Paimon table as loaded at one moment."""

    def __init__(self, directory: TableDirectory) -> None:
        """Raises UnreadableFile, DataFileMissing."""
        super().__init__(directory)
        schemas, self._snapshot_ids = self._numbers("schema"), self._numbers("snapshot")
        newest = f"schema/schema-{max(schemas, default=0)}"
        with self._reading(newest) as schema:
            self._columns = {str(field["name"]): _type_name(field["type"]) for field in schema["fields"]}
            self._partition_columns = tuple(map(str, schema["partitionKeys"]))
            self._keys = tuple(map(str, schema["primaryKeys"]))
            options = {str(key): str(value) for key, value in schema["options"].items()}
            numbers = int(schema.get("version", 1)), int(schema["id"]), int(schema["highestFieldId"])
        with self._reading(f"schema/schema-{min(schemas, default=0)}") as schema:
            # A table has no id. One that is dropped and created again differs in the time of its first schema.
            uuid = str(uuid5(NAMESPACE_URL, f"{directory.location}#{schema.get('timeMillis')}"))
        head = self._snapshot_ids[-1] if self._snapshot_ids else None
        self.facts = TableFacts(
            identifier=directory.identifier,
            uuid=uuid,
            format_version=numbers[0],
            location=directory.location,
            metadata_location=f"{directory.location}/{newest if head is None else f'snapshot/snapshot-{head}'}",
            snapshot_id=head,
            sequence_number=head or 0,
            properties=options,
            format=PaimonFormat.name,
            schema_id=numbers[1],
            last_column_id=numbers[2],
        )

    @cached_property
    def timeline(self) -> tuple[TimelineEntry, ...]:
        """The oldest and the newest snapshots; before them tags and consumers, with the snapshot that each keeps."""
        entries = []
        for folder, prefix, key in _KEEPERS:
            for name in self._names(folder, prefix):
                with suppress(DataFileMissing), self._reading(f"{folder}/{prefix}{name}") as document:
                    entries.append(TimelineEntry(str(document[key]), f"{folder} {name}", COMPLETED))
        numbers = sorted({*self._snapshot_ids[:_OLDEST], *self._snapshot_ids[-_NEWEST:]})
        return (*entries, *filter(None, each_at_once(self._snapshot, map(str, numbers)).values()))

    def _snapshot(self, number: str) -> TimelineEntry | None:
        with suppress(DataFileMissing), self._reading(f"snapshot/snapshot-{number}") as content:
            time = datetime.fromtimestamp(content["timeMillis"] / 1000, UTC).isoformat()
            return TimelineEntry(number, content["commitKind"], COMPLETED, time, content["commitUser"])
        return None  # it has expired

    @cached_property
    def contents(self) -> TableContents:
        """Its columns, files by partition, bucket and level, and timeline. Raises UnreadableFile, DataFileMissing."""
        groups, fields = self.live
        return TableContents(
            columns=self._columns,
            partition_columns=self._partition_columns,
            groups=groups,
            timeline=self.timeline,
            since_compaction=len(snapshots_since_compaction(self.timeline)),
            key_columns=self._keys,
            manifest_fields=fields,
            branches=tuple(self._names("branch", "branch-")),
        )

    @cached_property
    def live(self) -> tuple[tuple[FileGroup, ...], frozenset[str]]:
        """The buckets of the newest snapshot, and the fields that have values in its manifests."""
        added, deleted, fields = dict[_File, int](), set[_File](), set[str]()
        if self._snapshot_ids:
            with self._reading(f"snapshot/snapshot-{self._snapshot_ids[-1]}") as head:
                lists, indexes = [head["baseManifestList"], head["deltaManifestList"]], [head.get("indexManifest")]
            names = self._records(lists, lambda record: str(record["_FILE_NAME"]), fields)
            for is_deleted, file, size in self._records(names, _entry, fields):
                deleted.add(file) if is_deleted else added.update({file: size})
            self._records(filter(None, indexes), lambda record: None, fields)
        buckets = defaultdict[tuple[str, str], list[tuple[str, int]]](list)
        for partition, bucket, level, name in sorted(added.keys() - deleted):
            buckets[partition, str(bucket)].append((f"level {level}", added[partition, bucket, level, name]))
        return tuple(FileGroup(*key, tuple(files)) for key, files in buckets.items()), frozenset(fields)

    def _records(self, names: Iterable[str], pick: Callable[[Any], T], fields: set[str]) -> list[T]:
        """What is picked of each record of these manifests; the names of fields with values are added to `fields`."""

        def read(name: str) -> tuple[set[str], list[T]]:
            path, used, picked = f"{self.directory.location}/manifest/{name}", set[str](), list[T]()
            with _parsing(path), open_avro(self.directory.access, path) as file:
                for record in file.records():
                    flat = {**record, **record.get("_FILE", {})}
                    used.update(key for key, value in flat.items() if value is not None)
                    picked.append(pick(flat))
            return used, picked

        results = each_at_once(read, names).values()
        fields.update(*(used for used, _ in results))
        return [item for _, picked in results for item in picked]

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self._names(folder, f"{folder}-") if name.isascii() and name.isdigit())

    def _names(self, folder: str, prefix: str) -> list[str]:
        """What follows the prefix in the names in a folder."""
        start = f"{self.directory.location}/{folder}/{prefix}"
        pages = self.directory.access.pages(f"{self.directory.location}/{folder}")
        paths = (file.path for page in pages for file in page if file.path.startswith(start))
        return sorted({path.removeprefix(start).partition("/")[0] for path in paths})

    @contextmanager
    def _reading(self, name: str) -> Iterator[dict[str, Any]]:
        """The JSON document; what the block does not find in it is an error of the file."""
        path = f"{self.directory.location}/{name}"
        content = self.directory.access.read_bytes(path)
        with _parsing(path):
            yield json.loads(content)


class PaimonFormat(DirectoryFormat):
    """Paimon tables in the directories of a warehouse, or in a Hive metastore."""

    name = "paimon"
    marks = ("schema/schema-0",)

    def __init__(self) -> None:
        self._loaded = OrderedDict[TableIdentifier, PaimonTable]()

    def is_listed(self, parameters: Mapping[str, str]) -> bool:
        handler = parameters.get("storage_handler", "")
        return parameters.get("table_type", "").lower() == "paimon" or handler.startswith("org.apache.paimon.")

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> PaimonTable:
        """Its present state; what was read of manifests before stays valid while the snapshot is the same.

        Raises TableNotFound, UnreadableFile, DataFileMissing.
        """
        table, before = PaimonTable(self.find(catalog, identifier)), self._loaded.pop(identifier, None)
        if before is not None and before.facts == table.facts and "live" in vars(before):
            table.live = before.live
        self._loaded[identifier] = table
        while len(self._loaded) > _REMEMBERED:
            self._loaded.popitem(last=False)
        return table


def _entry(record: Mapping[str, Any]) -> tuple[bool, _File, int]:
    """Whether a manifest's record deletes its file, which file it is, and the file's size in bytes."""
    partition, numbers = b64encode(record["_PARTITION"]).decode(), (int(record["_BUCKET"]), int(record["_LEVEL"]))
    return record["_KIND"] != 0, (partition, *numbers, str(record["_FILE_NAME"])), int(record["_FILE_SIZE"])


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
    parts += [f"{field['name']} {_type_name(field['type'])}" for field in kind.get("fields", ())]
    return f"{word}<{', '.join(parts)}> {rest}".rstrip()
