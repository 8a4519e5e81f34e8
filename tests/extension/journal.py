"""A table format: a table is a directory of text files with a journal, each record of which is one file.

Record N is created by linking a finished file to its name, which fails if the name exists: so one of two concurrent
writers wins, and a record is never appended twice.
"""

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from amoro_core.errors import CatalogMisconfigured, CommitConflict, CommitUnknown, TableNotFound
from amoro_core.formats.ports import Role
from amoro_core.model.commits import Evidence, SnapshotAdded, Trace
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableFacts, TableIdentifier, discovery_filter

Record = dict[str, Any]


class JournalFormat:
    """Journals below the directory that a catalog's `warehouse` names."""

    name = "journal"

    def check(self, catalog: CatalogConfig) -> None:
        """Raises CatalogMisconfigured without a warehouse."""
        _warehouse(catalog)

    def commits_refused(self, catalog: CatalogConfig) -> None:
        """Refuses nothing: creating an existing link fails on every file system with links."""

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        """Every directory with a description that the catalog's filters admit."""
        root = _warehouse(catalog)
        names = (found.parent.relative_to(root).parts for found in root.rglob("journal.json"))
        tables = (TableIdentifier(catalog.name, parts[:-1], parts[-1]) for parts in names if len(parts) > 1)
        return sorted(filter(discovery_filter(dict(catalog.properties)).admits, tables))

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> "JournalTable":
        """The current table."""
        return JournalTable(identifier, _warehouse(catalog).joinpath(*identifier.in_catalog))


class JournalTable:
    """A journal, with its records at the time of loading."""

    roles = frozenset({Role.COMMIT})

    def __init__(self, identifier: TableIdentifier, place: Path) -> None:
        """Raises TableNotFound."""
        self.place = place
        self._identifier = identifier
        try:
            self._about = json.loads((place / "journal.json").read_text())
        except FileNotFoundError as error:
            raise TableNotFound(f"table {identifier} does not exist", table=identifier) from error
        self.records: list[Record] = [json.loads(found.read_text()) for found in sorted(place.glob("log/*.json"))]

    @property
    def facts(self) -> TableFacts:
        """The state given by the description and the last record."""
        return TableFacts(
            identifier=self._identifier,
            uuid=self._about["uuid"],
            format_version=1,
            location=self.place.as_uri(),
            metadata_location=self._record(len(self.records)).as_uri(),
            snapshot_id=self.records[-1]["id"] if self.records else None,
            sequence_number=len(self.records),
            properties=self._about["properties"],
            format=JournalFormat.name,
        )

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        """Every journal is supported."""

    def skip_reason(self) -> None:
        """No journal is skipped."""

    def io_properties(self) -> Mapping[str, str]:
        """No credentials: the files are local."""
        return {}

    def stage(self, content: Record) -> tuple[bytes, SnapshotAdded]:
        """A change that adds a record after the last one, and the id that identifies it."""
        record_id = uuid.uuid4().int >> 65  # 63 bits, like snapshot ids
        number, parent = len(self.records) + 1, self.facts.snapshot_id or 0
        payload = {"table": self.facts.uuid, "number": number, "record": {**content, "id": record_id, "parent": parent}}
        return json.dumps(payload).encode(), SnapshotAdded(record_id, parent, number)

    def send(self, payload: bytes) -> None:
        """Append a staged record; repeating it changes nothing. Raises CommitConflict."""
        asked, now = json.loads(payload), self.now()
        number, record = asked["number"], asked["record"]
        if asked["table"] == now.facts.uuid and now.records[number - 1 : number] == [record]:
            return
        if asked["table"] != now.facts.uuid or number != len(now.records) + 1:
            raise CommitConflict(f"the journal of {self._identifier} went on to record {len(now.records)}")
        draft = self.place / "log" / f".{record['id']}"
        draft.write_text(json.dumps(record))
        try:
            os.link(draft, self._record(number))
        except FileExistsError as error:
            raise CommitConflict(f"somebody else appended record {number} to {self._identifier}") from error
        except OSError as error:
            raise CommitUnknown(f"record {number} of {self._identifier}: {error}") from error
        finally:
            draft.unlink(missing_ok=True)

    def trace(self, evidence: Evidence) -> Trace:
        """Landed if the record exists, refuted if another record has its number."""
        assert isinstance(evidence, SnapshotAdded)
        records = self.now().records
        if evidence.snapshot_id in (record["id"] for record in records):
            return Trace.LANDED
        return Trace.REFUTED if len(records) >= evidence.sequence_number else Trace.OPEN

    def delete_unreferenced(self, paths: Iterable[str], since: int = 0) -> tuple[str, ...]:
        """Delete files of the table that no record names; a missing file counts as deleted."""
        named = {name for record in self.now().records for name in record.get("files", ())}
        ours = {path: self.place / path.removeprefix(f"{self.place.as_uri()}/") for path in paths}
        kept = {*named, "journal.json"}
        gone = {path: file for path, file in ours.items() if file.parent == self.place and file.name not in kept}
        for file in gone.values():
            file.unlink(missing_ok=True)
        return tuple(gone)

    def now(self) -> "JournalTable":
        """The reloaded table. Raises TableNotFound, or CommitConflict if another table has the name."""
        now = JournalTable(self._identifier, self.place)
        if now.facts.uuid != self.facts.uuid:
            raise CommitConflict(f"{self._identifier} is another table: UUID {now.facts.uuid}")
        return now

    def _record(self, number: int) -> Path:
        return self.place / "log" / f"{number:08}.json"


def _warehouse(catalog: CatalogConfig) -> Path:
    named = dict(catalog.properties).get("warehouse", "")
    if not Path(named).is_dir() or not Path(named).is_absolute():
        raise CatalogMisconfigured(
            f"catalog {catalog.name}: there is no directory {named!r}", hint="Name it by its path: warehouse=/data"
        )
    return Path(named)
