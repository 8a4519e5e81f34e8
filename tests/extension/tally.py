"""An action and its kind of work: counts the lines of a journal's files and appends the counts to the journal.

Optimizers count large files, the coordinator small ones; without large files there are no tasks.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from amoro_core.actions.action_api import Plan, PlannedTask, PlanningContext, Prepare, Request, TriggerVerdict
from amoro_core.errors import CommitConflict, TableRefused
from amoro_core.files.storage.io import FileAccess, open_access
from amoro_core.formats.ports import OpenTable, Role
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import METADATA, Change, Figure, ProcessContext, Receipt
from amoro_core.model.task_payload import Work
from amoro_optimizer.work_kinds import Run
from tests.extension.journal import JournalTable

NAME = "tally"
SMALL_BYTES = 100


class Tally:
    """The action; its only process has its name."""

    name = NAME
    names = (NAME,)
    lane = METADATA
    roles = frozenset({Role.COMMIT})

    def evaluate(self, table: OpenTable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict | None:
        """Due while some files are not counted; off with `tally.enabled=false` or for other formats."""
        if not isinstance(table, JournalTable) or properties.get("tally.enabled") == "false":
            return None
        waiting = _uncounted(table)
        return TriggerVerdict(bool(waiting), f"{len(waiting)} files are not counted")

    def plan(
        self, table: OpenTable, situation: PlanningContext, request: Request
    ) -> tuple[TriggerVerdict, Plan | None]:
        """One task for each large file; no plan if every file is counted."""
        journal, facts = _journal(table), table.facts
        waiting = _uncounted(journal)
        verdict = TriggerVerdict(bool(waiting), f"{len(waiting)} files are not counted")
        if not waiting:
            return verdict, None
        sizes = {name: (journal.place / name).stat().st_size for name in waiting}
        tasks = tuple(_task(facts.location, name, size) for name, size in sizes.items() if size > SMALL_BYTES)
        small = [name for name, size in sizes.items() if size <= SMALL_BYTES]
        detail = json.dumps(small)  # counted by the coordinator at the commit
        return verdict, Plan(NAME, verdict.reason, facts.snapshot_id or 0, facts.sequence_number, tasks, detail)

    def preparing(self) -> Prepare:
        """Counts the small files, adds all counts and stages the record, again for each attempt."""
        return _change

    def optimized(self, case: ProcessContext, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        """A journal has no partitions."""
        return frozenset()

    def inputs(self, case: ProcessContext) -> tuple[str, ...]:
        """The locations of the files that its tasks read."""
        given = [*(result.input for result in case.results), *(work.payload for work in case.open_work)]
        return tuple(f"{asked['location']}/{asked['file']}" for asked in map(json.loads, given))

    def outputs(self, case: ProcessContext, groups: frozenset[int]) -> tuple[str, ...]:
        """Tasks write no files."""
        return ()

    def removals(self, case: ProcessContext) -> tuple[str, ...]:
        """Nothing becomes superfluous."""
        return ()

    def receipt(self, case: ProcessContext) -> None:
        """Every process commits."""


class Counting:
    """The kind of work: counts the lines of one file."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        """Access to the directory of the journal."""
        place = json.loads(payload)["location"]
        return open_access(io_properties, place, read_locations=(place,), write_locations=(place,))

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        """The file's name and its number of lines."""
        asked = json.loads(payload)
        content = access.read_bytes(f"{asked['location']}/{asked['file']}")
        return json.dumps({asked["file"]: content.count(b"\n")}).encode()

    def files(self, result: bytes) -> frozenset[str]:
        """No outputs."""
        return frozenset()


def _uncounted(journal: JournalTable) -> list[str]:
    counted = {name for record in journal.records for name in record.get("tally", ())}
    return [name for record in journal.records for name in record.get("files", ()) if name not in counted]


def _task(location: str, name: str, size: int) -> PlannedTask:
    payload = json.dumps({"location": location, "file": name}).encode()
    return PlannedTask(Work(NAME, payload), cost=size, partition="", input_files=1, input_bytes=size)


def _journal(table: OpenTable) -> JournalTable:
    if not isinstance(table, JournalTable):
        raise TableRefused(f"{table.facts.identifier} is no journal: {NAME} counts nothing else", reason="format")
    return table


def _change(table: OpenTable, case: ProcessContext, now: datetime) -> Change:
    journal = _journal(table).now()
    tally: dict[str, int] = {}
    for result in case.results:
        tally |= json.loads(result.output)
    for name in json.loads(case.process.detail):
        tally[name] = (journal.place / name).read_bytes().count(b"\n")
    if tally.keys() - set(_uncounted(journal)):
        raise CommitConflict(f"somebody else counted files of {journal.facts.identifier} meanwhile")
    payload, evidence = journal.stage({"tally": tally})
    duration = round((now - case.process.created_at).total_seconds() * 1000)
    figures = (Figure("files", len(tally), "files"), Figure("lines", sum(tally.values()), "lines"))
    receipt = Receipt.brief(f"counted {len(tally)} files", evidence.snapshot_id, figures)
    receipt = replace(receipt, duration_ms=duration)
    return Change(payload, evidence, receipt, groups=tuple(result.number for result in case.results))
