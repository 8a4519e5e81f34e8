"""What tests put between the services and the world: Iceberg's answers, places to die, and limits that are small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from amoro_core import failpoints
from amoro_core.errors import CommitUnknown
from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.iceberg.maintenance.reachability_guard import Guard
from amoro_core.iceberg.manifest.columns import read_columns
from amoro_core.iceberg.manifest.manifest_cache import TableManifestCache
from amoro_core.iceberg.manifest.reading import PartitionTypes
from amoro_core.model.maintenance import Ended, Removal
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.scan.columns import ColumnPart

#: Constants of the product that a test makes small, so that few rows and files reach them.
LIMITS = {
    "large_table": "amoro_core.maintenance.manifests.LARGE",
    "listed_by_a_task": "amoro_core.actions.orphans.FILES_OF_A_LIST_TASK",
    "candidates_of_a_task": "amoro_core.actions.orphans.MOST_CANDIDATES",
    "listing_tasks": "amoro_core.actions.orphans.MOST_LIST_TASKS",
    "deleted_by_a_task": "amoro_core.actions.orphans.FILES_OF_A_DELETE_TASK",
    "deleting_tasks": "amoro_core.actions.orphans.MOST_DELETE_TASKS",
    "sketched_by_a_task": "amoro_core.actions.statistics.FILES_OF_A_TASK",
    "files_of_an_expiry": "amoro_core.actions.snapshots.MOST_FILES",
    "files_of_a_batch": "amoro_core.store.pending_deletions.MOST_IN_A_BATCH",
    "cleared_at_once": "amoro_core.services.post_commit_cleanup.CLEARED_AT_ONCE",
    "counted_tables": "amoro_core.services.catalogs.MOST_COUNTED",
    "trimmed_at_once": "amoro_core.services.history.CHUNK",
    "sampled_groups": "amoro_core.services.time_series.MOST_GROUPS",
    "points_of_an_answer": "amoro_core.services.time_series.MOST_POINTS",
    "looks_back": "amoro_core.iceberg.commit.validation_history.LOOKS_BACK",
    "delete_file_looked_into": "amoro_core.iceberg.commit.validation_history.MAX_BYTES",
    "exact_totals": "amoro_core.services.listings.EXACT",
    "catalogs_of_doctor": "amoro_core.bootstrap.doctor.CATALOGS_S",
    "scheduling_answer": "amoro_core.transactions.task_queue.ANSWER_BYTES",
}


class Limits:
    """Makes limits small, by their names in LIMITS, until the end of a `with` or of the test."""

    def __init__(self, end: ExitStack) -> None:
        self._end = end

    def __call__(self, **limits: Any) -> ExitStack:
        patch, made = pytest.MonkeyPatch(), ExitStack()
        for name, limit in limits.items():
            patch.setattr(LIMITS[name], limit)
        made.callback(patch.undo)
        self._end.callback(patch.undo)
        return made


@pytest.fixture
def limits() -> Iterator[Limits]:
    """Makes limits of the product small, until the end of the test."""
    with ExitStack() as end:
        yield Limits(end)


class Killed(BaseException):
    """The process died here."""


def raising(error: BaseException) -> Callable[..., Any]:
    """A method that raises this."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def not_removed(access: FileAccess, paths: Iterable[str]) -> Mapping[str, Removal]:
    """In the place of `delete_many`: the storage deletes nothing."""
    return dict.fromkeys(paths, Removal(Ended.FAILED, "503"))


class _Reaching(dict[str, str]):
    """In the place of armed failpoints: each that is reached is told."""

    def __init__(self, reach: Callable[[str], None]) -> None:
        super().__init__(any="armed")
        self._reach = reach

    def pop(self, name: str, *_: Any) -> Any:
        self._reach(name)


@contextmanager
def reaching(reach: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile call this at each failpoint, with its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "_actions", _Reaching(reach))
        yield


@contextmanager
def dying_at(point: str, turn: int = 1) -> Iterator[None]:
    """The process dies where it reaches that failpoint for that time; fails the test where it does not."""
    reached: list[str] = []

    def reach(name: str) -> None:
        reached.append(name)
        if name == point and reached.count(name) == turn:
            raise Killed

    with pytest.raises(Killed), reaching(reach):
        yield


def _rigged(plain: type, taken: Mapping[str, Any]) -> type:
    class Rigged(plain):
        def __getattribute__(self, name: str) -> Any:
            if name not in taken:
                return super().__getattribute__(name)
            instead = taken[name]
            if isinstance(instead, property):
                return instead.__get__(self)
            return partial(instead, self) if callable(instead) else instead

    return Rigged


class RiggedIceberg:
    """Iceberg as the services reach it; a test takes over methods, each of which gets what it belongs to first.

    Taken over is what is loaded already, too, until the end of a `with` or until `restore`.
    """

    name = IcebergFormat.name

    def __init__(self) -> None:
        self.plain = IcebergFormat()
        self._taken: dict[type, dict[str, Any]] = {one: {} for one in (IcebergFormat, IcebergTable, Guard, FileAccess)}
        guards, accesses = (_rigged(one, self._taken[one]) for one in (Guard, FileAccess))

        class Table(IcebergTable):
            def guard(self, sequence_number: int = 0) -> Guard:
                made = super().guard(sequence_number)
                made.__class__ = guards
                return made

            def access(self, trash_folder: str = "") -> FileAccess:
                made = super().access(trash_folder)
                made.__class__ = accesses
                return made

        self._table = _rigged(Table, self._taken[IcebergTable])

    def catalog(self, **methods: Any) -> ExitStack:
        """Take over methods of the format: `load`, `list_tables`, `locations`."""
        return self._take(IcebergFormat, methods)

    def table(self, **methods: Any) -> ExitStack:
        """Take over methods, properties or `roles` of every table."""
        return self._take(IcebergTable, methods)

    def guard(self, **methods: Any) -> ExitStack:
        """Take over methods of every guard."""
        return self._take(Guard, methods)

    def files(self, **methods: Any) -> ExitStack:
        """Take over methods of the access to the files of every table and to its trash."""
        return self._take(FileAccess, methods)

    def lose_answers(self, *, arrives: bool) -> ExitStack:
        """Nobody hears of the changes that are sent; whether they land is told by `arrives`."""

        def send(table: IcebergTable, payload: bytes) -> None:
            if arrives:
                IcebergTable.send(table, payload)
            raise CommitUnknown("no answer")

        return self.table(send=send)

    def before_sending(self, *happen: Callable[[], object]) -> list[bytes]:
        """Let these happen, one before each of the first sendings, or instead if one raises; what was to be sent."""
        left, sent = list(happen), list[bytes]()

        def send(table: IcebergTable, payload: bytes) -> None:
            sent.append(payload)
            if left:
                left.pop(0)()
            IcebergTable.send(table, payload)

        self.table(send=send)
        return sent

    def restore(self) -> None:
        """Everything works again as it is."""
        for taken in self._taken.values():
            taken.clear()

    def _take(self, plain: type, methods: Mapping[str, Any]) -> ExitStack:
        taken = self._taken[plain]
        before = {name: taken[name] for name in methods if name in taken}
        taken.update(methods)
        stack = ExitStack()
        stack.callback(taken.update, before)
        for name in methods:
            stack.callback(taken.pop, name, None)
        return stack

    def __getattr__(self, name: str) -> Any:
        """What is not rigged is as it is."""
        instead = self._taken[IcebergFormat].get(name)
        return getattr(self.plain, name) if instead is None else partial(instead, self.plain)

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> IcebergTable:
        table: IcebergTable = self.__getattr__("load")(catalog, identifier)
        table.__class__ = self._table
        return table


DECODED = "manifests decoded"


def remembering(home: Path, counts: Counter[str]) -> IcebergFormat:
    """Every table counts as large: kept in memory; manifests that are decoded are counted."""

    def read(io: FileIO, manifest: ManifestFile, types: PartitionTypes) -> ColumnPart | None:
        counts[DECODED] += 1
        return read_columns(io, manifest, types)

    return IcebergFormat(TableManifestCache(2**30, least_files=0), read)
