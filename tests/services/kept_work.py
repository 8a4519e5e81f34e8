"""A table that is rewritten again and again while others change its rows: what of the work is kept."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.model.clustering import CLUSTER, ClusterOptions
from amoro_core.model.files import FORMAT_WITH_VECTORS
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.protocol.codec import decode_cluster_output
from amoro_core.store import processes
from tests.engine import oracle, writer, writer3
from tests.engine.commits import Change, commit
from tests.engine.files import NAME_PREFIX, write_data_files
from tests.model.invariants import require_hidden
from tests.services.clustered import clusterer, commit_due, ordered
from tests.services.rigs import reaching
from tests.services.world import World

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "version", LongType(), required=False),
    NestedField(3, "filler", StringType(), required=False),
)
FILES, ROWS, WIDTH, TARGET_BYTES = 40, 20_000, 200, 16_000_000  # 4 MB each
_TRIES = 10


@dataclass
class Kept:
    """What became of the bytes that were rewritten."""

    rewritten: int = 0
    committed: int = 0
    carried: int = 0  # rows that others deleted while they were rewritten
    hidden: int = 0  # rows that were found hidden in outputs, where that was looked at
    outcomes: Counter[ProcessStatus] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """Of the rewritten bytes, those that a commit has."""
        return self.committed / self.rewritten


class Writer:
    """Another writer, with what it has made of the rows: the version of each id that is live."""

    def __init__(self, table: Table, seed: int, files: int = FILES) -> None:
        self.rows = dict.fromkeys(range(files * ROWS), 0)
        self.done = 0
        self.failed = 0  # though it tried again
        self._table, self._chance = table, random.Random(seed)

    def delete(self) -> None:
        """Delete one random row by position."""
        self._tried(lambda: self._marked(1, merged=False))

    def merge(self) -> None:
        """Give three random rows another version: deleted by position and written anew in one snapshot."""
        self._tried(lambda: self._marked(3, merged=True))

    def replace(self) -> None:
        """Write a random file anew without one of its rows."""
        self._tried(self._replaced)

    def _tried(self, write: Callable[[], None]) -> None:
        """Several times, as engines do whose input is gone when they commit."""
        for _ in range(_TRIES):
            try:
                write()
            except (ValueError, CommitFailedException, FileNotFoundError):
                continue
            self.done += 1
            return
        self.failed += 1

    def _file(self) -> str:
        self._table.refresh()
        files = oracle.files_in(self._table.metadata)
        return self._chance.choice([file.path for file in files if file.content == oracle.DATA])

    def _marked(self, count: int, *, merged: bool) -> None:
        path = self._file()
        read = pq.read_table(path.removeprefix("file://"), columns=["id", "version"])
        positions = sorted(self._chance.sample(range(len(read)), min(count, len(read))))
        # A row of an earlier version, and one that is deleted, stays so.
        hit = {
            id_: version + 1
            for id_, version in zip(*(column.to_pylist() for column in read.take(positions).columns), strict=True)
            if self.rows.get(id_) == version
        }
        new = [{"id": id_, "version": version, "filler": "merged"} for id_, version in hit.items()] if merged else []
        if self._table.metadata.format_version == FORMAT_WITH_VECTORS:
            writer3.delete_positions(self._table, {path: positions}, new)
        else:
            writer.row_delta(self._table, new, position_deletes=[(path, positions)], per_file=True)
        if merged:
            self.rows.update(hit)
        else:
            for id_ in hit:
                self.rows.pop(id_)

    def _replaced(self) -> None:
        path = self._file()
        rows = pq.read_table(path.removeprefix("file://"))
        at = self._chance.randrange(len(rows))
        gone = rows.column("id")[at].as_py()
        kept = pa.concat_tables([rows.slice(0, at), rows.slice(at + 1)])
        commit(
            self._table,
            lambda head: Change(tuple(write_data_files(head, kept)), frozenset({path})),
            writer.MAIN,
        )
        self.rows.pop(gone)


def made_table(
    directory: Path,
    *,
    rebase: bool = True,
    files: int = FILES,
    version: int = 2,
    width: int = WIDTH,
    more: Mapping[str, str] | None = None,
) -> World:
    """A world whose table has the files, with rows of random text."""
    catalog = writer.make_catalog(directory)
    properties = {
        "self-optimizing.target-size": str(TARGET_BYTES),
        "self-optimizing.max-task-size-bytes": str(TARGET_BYTES),
        "self-optimizing.rebase.enabled": str(rebase).lower(),
        "write.parquet.compression-codec": "zstd",
        **(more or {}),
    }
    table = writer.make_table(catalog, "db.t", SCHEMA, format_version=version, properties=properties)
    chance = np.random.default_rng(1)
    for number in range(files):
        text = chance.integers(32, 127, (ROWS, width), np.uint8).tobytes().decode()
        filler = [text[at : at + width] for at in range(0, len(text), width)]
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        rows = pa.table({"id": ids, "version": np.zeros(ROWS, np.int64), "filler": filler})
        writer.append(table, rows)
    return World(directory, catalog)


def rewrite_for(world: World, is_over: Callable[[], bool], after_task: Callable[[], None]) -> Kept:
    """Rewrite the whole table, process after process until it is over."""
    kept, optimizer, before = Kept(), world.optimizer(1), set[str]()
    while not is_over():
        process_id = world.begin(OptimizingType.FULL, force=True)
        while world.status(process_id) is ProcessStatus.RUNNING:
            world.run_one(optimizer)
            after_task()
        kept.outcomes[world.committing.commit(process_id)] += 1
        sizes = {
            task.task_id.number: sum(file.size_bytes for file in world.output_of(task).data_files)
            for task in world.tasks(process_id)
        }
        _count(kept, world, process_id, sizes)
        before = _swept(world.catalog.load_table("db.t"), before)
    return kept


def rewrite_beside(world: World, write: Callable[[], None], processes: int = 2) -> Kept:
    """Rewrite the whole table so often, while another writer commits after every second task, and once between the
    staging and the sending of each commit, which then loses and is made anew."""
    tasks, lost = 0, set[int]()

    def after_task() -> None:
        nonlocal tasks
        tasks += 1
        if tasks % 2 == 0:
            write()

    def reach(point: str) -> None:
        if point == "commit.after_intent" and tasks not in lost:
            lost.add(tasks)
            write()

    with reaching(reach):
        return rewrite_for(world, lambda: len(lost) == processes, after_task)


def cluster_for(world: World, is_over: Callable[[], bool], after_task: Callable[[], None] | None = None) -> Kept:
    """Put the whole table in order in one thread, again and again until it is over, by turns in two orders.

    Each row that is hidden in an output was hidden in an input.
    """
    kept, optimizer = Kept(), clusterer(world)
    before: set[str] = set()
    for columns in cycle([("filler",), ("id", "filler")]):
        if is_over():
            return kept
        asked = ClusterOptions(columns=columns, full=True)
        begun = world.maintaining.begin(world.table().table_id, CLUSTER, trigger="request", cluster=asked)
        process_id, sizes = begun.process_id, {}
        while handed := world.poll(optimizer):
            world.optimizing.ack(optimizer, [handed[0].attempt])
            made = ordered(handed[0])
            files = decode_cluster_output(made.payload).rewrite.data_files
            sizes[handed[0].attempt.task_id.number] = sum(file.size_bytes for file in files)
            if after_task is not None:
                after_task()
            world.optimizing.complete(optimizer, handed[0].attempt, made)
            commit_due(world, process_id)
        kept.outcomes[world.status(process_id)] += 1
        _count(kept, world, process_id, sizes)
        kept.hidden += require_hidden(world.catalog.load_table("db.t"), process_id)
        before = _swept(world.catalog.load_table("db.t"), before)
    raise AssertionError


def _count(kept: Kept, world: World, process_id: str, sizes: Mapping[int, int]) -> None:
    """Add what became of a process whose tasks have written so many bytes each."""
    attempts = world.store.read(lambda db: processes.list_commits(db, process_id))
    done = [one for one in attempts if one.outcome is CommitOutcome.DONE]
    landed = {number for one in done for number in one.groups}
    kept.rewritten += sum(sizes.values())
    kept.committed += sum(size for number, size in sizes.items() if number in landed)
    kept.carried += sum(
        figure.value for one in done for figure in one.receipt.figures if figure.name == "rows_carried_over"
    )


def _swept(table: Table, before: set[str]) -> set[str]:
    """Delete our outputs that neither this head nor the one before has: they would fill a disk. Returns the live files.

    What others write stays, since they may be about to commit it.
    """
    live = {file.path.removeprefix("file://") for file in oracle.files_in(table.metadata)}
    for path in Path(f"{table.location().removeprefix('file://')}/data").rglob("*.parquet"):
        if str(path) not in live | before and not path.name.startswith(NAME_PREFIX):
            path.unlink()
    return live


def require_rows(world: World, other: Writer) -> None:
    """The table holds what the writer has made of it, as pyiceberg reads it."""
    read = world.catalog.load_table("db.t").scan(selected_fields=("id", "version")).to_arrow()
    found = Counter(zip(read.column("id").to_pylist(), read.column("version").to_pylist(), strict=True))
    assert found == Counter(other.rows.items())
