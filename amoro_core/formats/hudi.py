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
from amoro_core.formats.directories import TableDirectories, TableDirectory
from amoro_core.formats.ports import Role
from amoro_core.maintenance.table_services import delta_commits
from amoro_core.model.maintenance import KeyRange
from amoro_core.model.paths import key_in_place
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.table_services import (
    COMPLETED,
    INFLIGHT,
    REQUESTED,
    NamedColumn,
    StoredFiles,
    TableContents,
    TimelineEntry,
)
from amoro_core.model.tables import TableFacts, TableIdentifier
from amoro_core.model.text_sanitizing import briefly

NAME = "hudi"
#: The file of a table's properties, and what takes its place while it is replaced.
_MARKS = (".hoodie/hoodie.properties", ".hoodie/hoodie.properties.backup")
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


class HudiFormat:
    """Hudi tables below a warehouse, or in a Hive metastore as Hudi's own synchronisation registers them."""

    name = NAME

    def __init__(self) -> None:
        self._directories = TableDirectories(NAME, _MARKS, _is_hudi)
        self.check = self._directories.check
        self.list_tables = self._directories.list_tables

    def commits_refused(self, catalog: CatalogConfig) -> None:
        """Nothing is refused: Hudi itself commits, in the table's directory."""

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> "HudiTable":
        """The table's properties and timeline. Raises TableNotFound, and TableRefused("metadata")."""
        return HudiTable(self._directories.find(catalog, identifier))


def _is_hudi(parameters: Mapping[str, str]) -> bool:
    return "hudi" in (parameters.get("spark.sql.sources.provider", "").lower(), parameters.get("provider", "").lower())


class HudiTable:
    """A Hudi table as loaded at one moment."""

    roles = frozenset({Role.SERVICE})

    def __init__(self, directory: TableDirectory) -> None:
        self._directory = directory
        self._properties = self._read_properties()
        self._layout = int(self._properties["hoodie.timeline.layout.version"])
        folder = self._properties.get("hoodie.timeline.path", "timeline") if self._layout > 1 else ""
        self._folder = f"{directory.location}/.hoodie/{folder}".rstrip("/")
        self._names: dict[tuple[str, str], str] = {}  # of the files of instants, by time and state
        self._timeline = tuple(self._read_timeline())

    @cached_property
    def facts(self) -> TableFacts:
        """Facts from properties and timeline; the last instant stands for a snapshot."""
        location, done = self._directory.location, [one for one in self._timeline if one.state == COMPLETED]
        last = max((entry.completed or entry.time for entry in done), default="")
        return TableFacts(
            identifier=self._directory.identifier,
            uuid=str(uuid.uuid5(uuid.NAMESPACE_URL, location)),  # Hudi's tables have none
            format_version=int(self._properties["hoodie.table.version"]),
            location=location,
            metadata_location=f"{location}/{_MARKS[0]}",
            snapshot_id=int(last) if last else None,
            sequence_number=len(done),
            properties={**self._directory.parameters, **self._properties},
            format=NAME,
        )

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        """Raise TableRefused("format-version") for a version of the table that was not tried."""
        version = self._properties["hoodie.table.version"]
        if version not in _VERSIONS:
            raise TableRefused(
                f"Hudi tables of version {version} are not supported, but {', '.join(_VERSIONS)}",
                reason="format-version",
                hint="Let Hudi's own tools upgrade it.",
            )

    def skip_reason(self) -> str:
        """Never optimized by us: Hudi does its services."""
        return "Hudi does it, on an optimizer with Spark"

    def io_properties(self) -> Mapping[str, str]:
        """The properties of its storage."""
        return self._directory.storage

    def timeline(self) -> tuple[TimelineEntry, ...]:
        """The active timeline; archived instants are not read."""
        return self._timeline

    def contents(self) -> TableContents:
        """Schema, files and timeline; files are listed the first time. Raises what listing and reading raise."""
        return self._contents

    @cached_property
    def _contents(self) -> TableContents:
        files, superseded = self._slices()
        partitioned = self._properties.get("hoodie.table.partition.fields", "")
        return TableContents(
            columns=self._columns(),
            partition_columns=tuple(name.partition(":")[0] for name in partitioned.split(",") if name),
            files=files,
            timeline=self._timeline,
            since_compaction=delta_commits(self._timeline),
            superseded_files=len(superseded),
            superseded_bytes=sum(superseded),
        )

    def _slices(self) -> tuple[tuple[StoredFiles, ...], list[int]]:
        """The files of the newest slice of each file group, and the sizes of the others.

        A slice is a base file and the log files that were completed after it was requested. In layout 1 log files name
        the base file's instant instead of their own.
        """
        groups: dict[tuple[str, str], list[tuple[str, str, int]]] = defaultdict(list)
        for partition, name, size in self._list_files():
            base, log = _BASE.fullmatch(name), _LOG.fullmatch(name)
            found = base or log
            at = self._completed_at(found[2]) if found else None
            if found is not None and (at is not None or (log and self._layout == 1)):
                groups[partition, found[1]].append(("base", found[2], size) if base else ("log", at or found[2], size))
        replaced = set(self._replaced())
        live: list[StoredFiles] = []
        superseded: list[int] = []
        for group, files in sorted(groups.items()):
            start = max((time for kind, time, _ in files if kind == "base"), default="")
            kept = [] if group in replaced else [file for file in files if file[1] >= start]
            superseded += [size for file in files if file not in kept for size in file[2:]]
            for kind in ("base", "log"):
                sizes = [size for one, _, size in kept if one == kind]
                live += [StoredFiles(*group, kind, len(sizes), sum(sizes))] if sizes else []
        return tuple(live), superseded

    def _list_files(self) -> Iterator[tuple[str, str, int]]:
        """Partition, name and size of every file outside of `.hoodie`."""
        location = self._directory.location
        key = f"{key_in_place(location).rstrip('/')}/.hoodie"
        for within in (KeyRange(until=key), KeyRange(after=f"{key}0")):  # "0" is what follows "/"
            for page in self._directory.access.pages(location, within):
                for file in page:
                    partition, _, name = file.path.removeprefix(f"{location}/").rpartition("/")
                    yield partition, name, file.size_bytes

    def _completed_at(self, time: str) -> str | None:
        """When an instant was completed; None: it is not. What is older than the active timeline was completed."""
        if not self._timeline or time < self._timeline[0].time:
            return time
        return self._completed.get(time)

    @cached_property
    def _completed(self) -> dict[str, str]:
        return {one.time: one.completed or one.time for one in self._timeline if one.state == COMPLETED}

    def _replaced(self) -> Iterator[tuple[str, str]]:
        """The file groups that clustering or an overwrite has replaced."""
        for entry in self._timeline:
            if entry.action == "replacecommit" and entry.state == COMPLETED:
                for partition, groups in (self._metadata(entry).get("partitionToReplaceFileIds") or {}).items():
                    yield from ((partition, group) for group in groups)

    def _columns(self) -> tuple[NamedColumn, ...]:
        """The columns that the last write had, else those that the table was created with."""
        writes = [one for one in self._timeline if one.state == COMPLETED and one.action in _WRITES]
        extra = self._metadata(writes[-1]).get("extraMetadata") or {} if writes else {}
        text = extra.get("schema") or self._properties.get("hoodie.table.create.schema", "")
        with self._refusing(text and "the schema"):
            fields = json.loads(text)["fields"] if text else []
            every = (NamedColumn(one["name"], _type_name(one["type"])) for one in fields)
            return tuple(column for column in every if not column.name.startswith("_hoodie_"))

    def _metadata(self, entry: TimelineEntry, state: str = COMPLETED) -> dict[str, Any]:
        """What the file of an instant in that state says: Avro in layout 2 and of plans, JSON else."""
        name = self._names[entry.time, state]
        content = self._directory.access.read_bytes(f"{self._folder}/{name}")
        with self._refusing(name):
            if content.startswith(b"Obj\x01"):
                record: Any = next(iter(fastavro.reader(BytesIO(content))))
                return dict(record)
            return dict(json.loads(content)) if content else {}

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """Refuse the table for a file of it that is malformed, whatever a decoder raises for it."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, EOFError, IndexError, StopIteration) as error:
            raise self._malformed(f"{what} can't be read: {briefly(str(error) or type(error).__name__)}") from error

    def _malformed(self, problem: str) -> TableRefused:
        return TableRefused(
            f"{self._directory.identifier} at {self._directory.location}: {problem}",
            reason="metadata",
            hint="Restore the file, or repair the table with Hudi's command line.",
        )

    def _read_properties(self) -> dict[str, str]:
        """The table's properties; while a writer replaces their file, those of its backup."""
        problems = []
        for path in _MARKS:
            try:
                properties = parse_properties(self._directory.access.read_bytes(f"{self._directory.location}/{path}"))
            except DataFileMissing:
                problems.append(f"{path} is missing")
                continue
            except ValueError as error:
                problems.append(f"{path} is malformed or truncated: {error}")
                continue
            if not (flaw := _flaw(properties)):
                return properties
            problems.append(f"{path} is malformed or truncated: {flaw}")
        raise self._malformed("; ".join(problems))

    def _read_timeline(self) -> Iterator[TimelineEntry]:
        key = key_in_place(self._folder)
        latest: dict[tuple[str, str], TimelineEntry] = {}
        digits = KeyRange(after=f"{key}/0", until=f"{key}/:")  # ":" is what follows "9"
        for page in self._directory.access.pages(self._folder, digits):
            for file in page:
                entry = self._entry(name := file.path.rpartition("/")[2])
                self._names[entry.time, entry.state] = name
                instant = entry.time, _COMPLETED_AS.get(entry.action, entry.action)
                if instant not in latest or _STATES.index(entry.state) > _STATES.index(latest[instant].state):
                    latest[instant] = entry
        for entry in sorted(latest.values(), key=lambda entry: (entry.time, entry.action)):
            yield self._told_apart(entry)

    def _entry(self, name: str) -> TimelineEntry:
        match = _INSTANT.fullmatch(name)
        action, _, state = match[3][1:].partition(".") if match else ("", "", "")
        if action == INFLIGHT and not state:  # of commits, for compatibility
            action, state = "commit", INFLIGHT
        if match is None or action not in _ACTIONS or state not in ("", REQUESTED, INFLIGHT):
            raise self._malformed(f"{self._folder}/{name} is no instant that Hudi 0.x to 1.2 writes")
        return TimelineEntry(match[1], action, state or COMPLETED, match[2] or "")

    def _told_apart(self, entry: TimelineEntry) -> TimelineEntry:
        """In layout 1 pending clusterings have the action of overwrites; only their plan tells them apart."""
        if self._layout != 1 or entry.action != "replacecommit" or entry.state == COMPLETED:
            return entry
        if (entry.time, REQUESTED) not in self._names:
            return entry
        is_clustering = self._metadata(entry, REQUESTED).get("operationType") == "CLUSTER"
        return replace(entry, action="clustering") if is_clustering else entry


def parse_properties(content: bytes) -> dict[str, str]:
    """The entries of a file as Java's `Properties.store` writes it. Raises ValueError for a line that is none."""
    found = {}
    for line in content.decode("latin-1").splitlines():
        if not line.strip() or line.lstrip()[0] in "#!":
            continue
        match = _PROPERTY.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"the line {briefly(line)!r} is no property")
        found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(
        lambda one: chr(int(one[1][1:], 16)) if len(one[1]) == 5 else _CONTROL.get(one[1], one[1]), text
    )


def _flaw(properties: Mapping[str, str]) -> str:
    """Why the properties can't be those of a table; "": they can."""
    for key in _REQUIRED:
        if not properties.get(key):
            return f"{key} is missing"
    name, database = properties["hoodie.table.name"], properties.get("hoodie.database.name", "")
    checksum = properties.get("hoodie.table.checksum", "")
    known = {str(zlib.crc32(text.encode())) for text in (name, f"{database}.{name}")}
    if checksum and checksum not in known:
        return f"hoodie.table.checksum is {checksum}, and not that of {name!r}"
    numbers = properties["hoodie.table.version"], properties["hoodie.timeline.layout.version"]
    return "" if all(number.isdecimal() for number in numbers) else f"the versions are {' and '.join(numbers)}"


def _type_name(avro: Any) -> str:
    """An Avro type in a word; of a union with null, the other one."""
    if isinstance(avro, list):
        return " or ".join(_type_name(one) for one in avro if one != "null")
    if not isinstance(avro, dict):
        return str(avro)
    match avro.get("logicalType", avro["type"]):
        case "decimal":
            return f"decimal({avro['precision']}, {avro.get('scale', 0)})"
        case "array":
            return f"array of {_type_name(avro['items'])}"
        case "map":
            return f"map of {_type_name(avro['values'])}"
        case str() as name:
            return name
        case nested:
            return _type_name(nested)
