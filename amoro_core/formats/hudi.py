"""Hudi tables, read without a JVM: properties, timeline and file slices, of table versions 6, 8 and 9.

Facts are from Hudi's own code (`HoodieTableConfig`, `HoodieTimeline`, `TimelineLayout`) and its Rust reader. Layout 1
of the timeline has instants as `.hoodie/TIME.ACTION[.STATE]`, layout 2 as
`.hoodie/timeline/TIME[_COMPLETED].ACTION[.STATE]`.
"""

import json
import re
import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from io import BytesIO
from typing import Any

import fastavro

from amoro_core.errors import DataFileMissing, TableRefused
from amoro_core.formats.directories import DirectoryFormat, DirectoryTable, TableDirectory
from amoro_core.maintenance.table_services import delta_commits
from amoro_core.model.maintenance import KeyRange
from amoro_core.model.paths import key_in_place
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.table_services import COMPLETED, INFLIGHT, REQUESTED, FileGroup, TableContents, TimelineEntry
from amoro_core.model.tables import TableFacts, TableIdentifier
from amoro_core.model.text_sanitizing import briefly

#: Without these a table can't be read; a truncated file mostly lacks one.
_REQUIRED = ("hoodie.table.name", "hoodie.table.type", "hoodie.table.version", "hoodie.timeline.layout.version")
#: Table versions that were tried; 7 is only passed through by an upgrade.
_VERSIONS = ("6", "8", "9")
_INSTANT = re.compile(r"(\d{14}|\d{17})(?:_(\d{14}|\d{17}))?((?:\.[a-z]+){1,2})")
_ACTIONS = (
    *("commit", "deltacommit", "clean", "rollback", "savepoint", "replacecommit", "clustering", "compaction"),
    *("logcompaction", "restore", "indexing", "schemacommit"),
)
#: What pending actions are called once they are completed.
_COMPLETED_AS = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}
_STATES = (REQUESTED, INFLIGHT, COMPLETED)
_PROPERTY = re.compile(r"((?:\\.|[^=:\\\s])+)\s*[=:]\s*(.*)")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITES = ("commit", "deltacommit", "replacecommit")
_BASE = re.compile(r"([^_]+)_[^_]+_(\d{14}|\d{17})\.\w+")
_LOG = re.compile(r"\.([^_]+)_(\d{14}|\d{17})\.log\.\d+(?:_[^_.]+)?")  # logs of changes only (.cdc) are left out


class HudiTable(DirectoryTable):
    """A Hudi table as loaded at one moment."""

    def __init__(self, directory: TableDirectory) -> None:
        """Raises TableRefused("metadata")."""
        super().__init__(directory)
        self._properties = self._read_properties()
        self._layout = int(self._properties["hoodie.timeline.layout.version"])
        folder = self._properties.get("hoodie.timeline.path", "timeline") if self._layout > 1 else ""
        self._folder = f"{directory.location}/.hoodie/{folder}".rstrip("/")
        self._names: dict[tuple[str, str], str] = {}  # of the files of instants, by time and state
        self.timeline = tuple(self._read_timeline())
        done = self._completed.values()
        self.facts = TableFacts(
            identifier=directory.identifier,
            uuid=str(uuid.uuid5(uuid.NAMESPACE_URL, directory.location)),  # Hudi's tables have none
            format_version=int(self._properties["hoodie.table.version"]),
            location=directory.location,
            metadata_location=f"{directory.location}/{HudiFormat.marks[0]}",
            snapshot_id=int(max(done)) if done else None,
            sequence_number=len(done),
            properties={**directory.parameters, **self._properties},
            format=HudiFormat.name,
        )

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        version = self._properties["hoodie.table.version"]
        if version not in _VERSIONS:
            raise TableRefused(
                f"Hudi tables of version {version} are not supported, but {', '.join(_VERSIONS)}",
                reason="format-version",
                hint="Let Hudi's own tools upgrade it.",
            )

    def last_rewrite(self) -> tuple[int, int] | None:
        """The last compaction or clustering, and the moment before it was requested."""
        last = int(max(self.done_since(0, "COMPACT"), self.done_since(0, "CLUSTER")) or 0)
        return (last - 1, last) if last else None

    def done_since(self, state: int, operation: str) -> str:
        """The newest completed instant of that action or operation that was requested after the state; "" without."""
        for entry in reversed(self.timeline):
            if entry.time <= str(state):
                break
            if entry.state != COMPLETED:
                continue
            made_by = (
                self._metadata(entry).get("operationType") if entry.action in ("commit", "replacecommit") else None
            )
            if operation in (entry.action, str(made_by).upper()):
                return entry.time
        return ""

    def rows(self, state: int) -> Iterator[Any]:
        """The rows as of an instant, by the package `hudi`, without Hudi's own columns."""
        try:
            from hudi import HudiReadOptions
            from hudi import HudiTable as Reader

            for batch in Reader(self.directory.location).read_stream(
                HudiReadOptions().with_as_of_timestamp(str(state))
            ):
                yield batch.select(sorted(name for name in batch.schema.names if not name.startswith("_hoodie_")))
        except Exception as error:  # it is not installed, or raises errors of its own for what it can't read
            raise TableRefused(
                f"rows of {self.directory.identifier} can't be compared by the package hudi: {briefly(str(error))}",
                reason="format",
                hint="Install the reader with: pip install 'amoro[hudi]'; or compare them by Spark.",
            ) from error

    @cached_property
    def contents(self) -> TableContents:
        groups, superseded = self._slices()
        partitioned = self._properties.get("hoodie.table.partition.fields", "")
        return TableContents(
            columns=self._columns(),
            partition_columns=tuple(name.partition(":")[0] for name in partitioned.split(",") if name),
            groups=groups,
            timeline=self.timeline,
            since_compaction=delta_commits(self.timeline),
            superseded_files=len(superseded),
            superseded_bytes=sum(superseded),
        )

    def _slices(self) -> tuple[tuple[FileGroup, ...], list[int]]:
        """The newest slice of each file group, and the sizes of the files of others.

        A slice is a base file and the log files that were completed after it was requested. In layout 1 log files name
        the base file's instant instead of their own.
        """
        files: dict[tuple[str, str], list[tuple[str, str, int]]] = defaultdict(list)
        for partition, name, size in self._list_files():
            base, log = _BASE.fullmatch(name), _LOG.fullmatch(name)
            if base and self._completed_at(base[2]) is not None:
                files[partition, base[1]].append(("base", base[2], size))
            elif log and (at := log[2] if self._layout == 1 else self._completed_at(log[2])) is not None:
                files[partition, log[1]].append(("log", at, size))
        replaced, groups, superseded = set(self._replaced()), list[FileGroup](), list[int]()
        for key, some in sorted(files.items()):
            bases = (time for kind, time, _ in some if kind == "base")
            start = "9" * 17 if key in replaced else max(bases, default="")
            superseded += [size for _, time, size in some if time < start]
            if live := sorted((kind, size) for kind, time, size in some if time >= start):
                groups.append(FileGroup(*key, tuple(live)))
        return tuple(groups), superseded

    def _list_files(self) -> Iterator[tuple[str, str, int]]:
        """Partition, name and size of every file outside of `.hoodie`."""
        location = self.directory.location
        key = f"{key_in_place(location).rstrip('/')}/.hoodie"
        for within in (KeyRange(until=key), KeyRange(after=f"{key}0")):  # "0" is what follows "/"
            for page in self.directory.access.pages(location, within):
                for file in page:
                    partition, _, name = file.path.removeprefix(f"{location}/").rpartition("/")
                    yield partition, name, file.size_bytes

    def _completed_at(self, time: str) -> str | None:
        """When an instant was completed; None: it is not. What is older than the active timeline was completed."""
        if not self.timeline or time < self.timeline[0].time:
            return time
        return self._completed.get(time)

    @cached_property
    def _completed(self) -> dict[str, str]:
        return {entry.time: entry.completed or entry.time for entry in self.timeline if entry.state == COMPLETED}

    def _replaced(self) -> Iterator[tuple[str, str]]:
        """The file groups that clustering or an overwrite has replaced."""
        for entry in self.timeline:
            if entry.action == "replacecommit" and entry.state == COMPLETED:
                for partition, groups in (self._metadata(entry).get("partitionToReplaceFileIds") or {}).items():
                    yield from ((partition, group) for group in groups)

    def _columns(self) -> dict[str, str]:
        """The columns that the last write had, else those that the table was created with."""
        writes = [entry for entry in self.timeline if entry.state == COMPLETED and entry.action in _WRITES]
        extra = self._metadata(writes[-1]).get("extraMetadata") or {} if writes else {}
        text = extra.get("schema") or self._properties.get("hoodie.table.create.schema") or '{"fields": []}'
        with self._refusing("the schema"):
            kinds = {field["name"]: _type_name(field["type"]) for field in json.loads(text)["fields"]}
            return {name: kind for name, kind in kinds.items() if not name.startswith("_hoodie_")}

    def _metadata(self, entry: TimelineEntry, state: str = COMPLETED) -> dict[str, Any]:
        """What the file of an instant in that state says: Avro in layout 2 and of plans, JSON else."""
        name = self._names[entry.time, state]
        content = self.directory.access.read_bytes(f"{self._folder}/{name}")
        with self._refusing(name):
            if content.startswith(b"Obj\x01"):
                record: Any = next(iter(fastavro.reader(BytesIO(content))))
                return dict(record)
            return dict(json.loads(content)) if content else {}

    @contextmanager
    def _refusing(self, noun: str) -> Iterator[None]:
        """Refuse the table for a file of it that is malformed, whatever a decoder raises for it."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, EOFError, IndexError, StopIteration) as error:
            raise self._malformed(f"{noun} can't be read: {briefly(str(error) or type(error).__name__)}") from error

    def _malformed(self, problem: str) -> TableRefused:
        return TableRefused(
            f"{self.directory.identifier} at {self.directory.location}: {problem}",
            reason="metadata",
            hint="Restore the file, or repair the table with Hudi's command line.",
        )

    def _read_properties(self) -> dict[str, str]:
        """The table's properties; while a writer replaces their file, those of its backup."""
        problems = []
        for path in HudiFormat.marks:
            try:
                return table_properties(self.directory.access.read_bytes(f"{self.directory.location}/{path}"))
            except DataFileMissing:
                problems.append(f"{path} is missing")
            except ValueError as error:
                problems.append(f"{path} is malformed or truncated: {error}")
        raise self._malformed("; ".join(problems))

    def _read_timeline(self) -> Iterator[TimelineEntry]:
        key = key_in_place(self._folder)
        latest: dict[tuple[str, str], TimelineEntry] = {}
        digits = KeyRange(after=f"{key}/0", until=f"{key}/:")  # ":" is what follows "9"
        for page in self.directory.access.pages(self._folder, digits):
            for file in page:
                entry = self._entry(name := file.path.rpartition("/")[2])
                self._names[entry.time, entry.state] = name
                instant = entry.time, _COMPLETED_AS.get(entry.action, entry.action)
                latest[instant] = max(entry, latest.get(instant, entry), key=lambda item: _STATES.index(item.state))
        for entry in sorted(latest.values(), key=lambda entry: (entry.time, entry.action)):
            # In layout 1 pending clusterings have the action of overwrites; only their plan tells them apart.
            is_replacing = entry.action == "replacecommit" and entry.state != COMPLETED
            if is_replacing and (entry.time, REQUESTED) in self._names:
                is_clustering = self._metadata(entry, REQUESTED).get("operationType") == "CLUSTER"
                entry = replace(entry, action="clustering") if is_clustering else entry
            yield entry

    def _entry(self, name: str) -> TimelineEntry:
        match = _INSTANT.fullmatch(name)
        action, _, state = match[3][1:].partition(".") if match else ("", "", "")
        if action == INFLIGHT and not state:  # of commits, for compatibility
            action, state = "commit", INFLIGHT
        if match is None or action not in _ACTIONS or state not in ("", REQUESTED, INFLIGHT):
            raise self._malformed(f"{self._folder}/{name} is no instant that Hudi 0.x to 1.2 writes")
        return TimelineEntry(match[1], action, state or COMPLETED, match[2] or "")


class HudiFormat(DirectoryFormat):
    """Hudi tables below a warehouse, or in a Hive metastore as Hudi's own synchronisation registers them."""

    name = "hudi"
    #: The file of a table's properties, and what takes its place while it is replaced.
    marks = (".hoodie/hoodie.properties", ".hoodie/hoodie.properties.backup")

    def is_listed(self, parameters: Mapping[str, str]) -> bool:
        providers = parameters.get("spark.sql.sources.provider", ""), parameters.get("provider", "")
        return self.name in map(str.lower, providers)

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> HudiTable:
        return HudiTable(self.find(catalog, identifier))


def table_properties(content: bytes) -> dict[str, str]:
    """The properties of a table, as Java's `Properties.store` writes them. Raises ValueError where they are none."""
    lines = [line.strip() for line in content.decode("latin-1").split("\n")]
    result = {}
    for line in lines:
        if line and line[0] not in "#!":
            if (match := _PROPERTY.fullmatch(line)) is None:
                raise ValueError(f"the line {briefly(line)!r} is no property")
            key, value = (_ESCAPED.sub(_unescaped, text) for text in match.groups())
            result[key] = value
    for key in _REQUIRED:
        if not result.get(key):
            raise ValueError(f"{key} is missing")
    name, checksum = result["hoodie.table.name"], result.get("hoodie.table.checksum", "")
    names = (name, f"{result.get('hoodie.database.name', '')}.{name}")
    if checksum and checksum not in (str(zlib.crc32(text.encode())) for text in names):
        raise ValueError(f"hoodie.table.checksum is {checksum}, and not that of {name!r}")
    numbers = result["hoodie.table.version"], result["hoodie.timeline.layout.version"]
    if not all(number.isdecimal() for number in numbers):
        raise ValueError(f"the versions are {' and '.join(numbers)}")
    return result


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1][1:], 16)) if len(match[1]) > 1 else _CONTROL.get(match[1], match[1])


def _type_name(avro: Any) -> str:
    """An Avro type in words; of a union with null, the other one."""
    if isinstance(avro, list):
        return " or ".join(_type_name(branch) for branch in avro if branch != "null")
    if not isinstance(avro, dict):
        return str(avro)
    name, inner = _type_name(avro.get("logicalType", avro["type"])), avro.get("items", avro.get("values"))
    digits = f"({avro['precision']}, {avro.get('scale', 0)})" if name == "decimal" else ""
    return f"{name}{digits}" if inner is None else f"{name} of {_type_name(inner)}"
