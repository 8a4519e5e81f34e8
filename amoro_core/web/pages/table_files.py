"""Pages that read a table's metadata or manifests: on request, few at once, with a time limit."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from amoro_core.documents.formatting import format_bytes, format_count
from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.model.commits import PROCESS_ID
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as kept
from amoro_core.protocol import snapshots_pb2 as snapshots_pb
from amoro_core.web.charts import Chart, Moment, SizeCounts, histogram, timeline
from amoro_core.web.pages.framework import Page, PageRequest, Redirect, command, deadline, to_table, whole_number
from amoro_core.web.pages.tables import table_of, table_page

DEADLINE_S = 10.0
AT_ONCE = 2
_REMEMBERED = 64

Seen = TypeVar("Seen")


class ReadLimiter(Generic[Seen]):
    """Limits concurrent table reads and their duration, and remembers the last results by key."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE)
        self._seen: OrderedDict[tuple[object, ...], Seen] = OrderedDict()

    def recall(self, key: tuple[object, ...]) -> Seen | None:
        """The remembered result; None if there is none or it is too old."""
        return self._seen.get(key)

    def remember(self, key: tuple[object, ...], seen: Seen) -> None:
        """Remember the result; the oldest is dropped."""
        self._seen[key] = seen
        self._seen.move_to_end(key)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    @asynccontextmanager
    async def reading(self, noun: str, same: str) -> AsyncIterator[None]:
        """The time limit of one read, waiting included. Raises WaitTimeout with the command in its hint."""
        async with deadline(DEADLINE_S, f"{noun} was not read", same), self._room:
            yield


FILES = 1000  # of a listing
_LARGEST_ID = 2**63 - 1
_KINDS = ("data", "position deletes", "equality deletes")


class Files:
    """The page of sizes and partitions, and the listing."""

    def __init__(self, limiter: ReadLimiter[pb.ListTableFilesResponse]) -> None:
        self._limiter = limiter

    async def show(self, visit: PageRequest) -> Page:
        """Histogram, and the partitions most in need, of the last evaluation that has read the files."""
        table = await table_of(visit)
        digest = await visit.ask(kept.GetTableDigestRequest(table=table.table), kept.TableDigest)
        return table_page(table, "table_files.html", "files", digest=digest, sizes=_sizes(digest))

    async def list_now(self, visit: PageRequest) -> Page:
        """A thousand live files, read now from the table's manifests."""
        table, after = await table_of(visit), visit.query["after"]
        snapshot = whole_number(visit.query["snapshot"], "snapshot", _LARGEST_ID)
        request = pb.ListTableFilesRequest(table=table.table, limit=FILES, after=after, snapshot_id=snapshot)
        same = command("table", "files", table.table)
        async with self._limiter.reading(f"the list of files of {table.table}", same):
            response = await visit.ask(request, pb.ListTableFilesResponse)
        following = ""
        if response.next:
            snapshot = response.snapshot_id
            following = to_table(table.table, table.table_id, "files", "list", after=response.next, snapshot=snapshot)
        return table_page(table, "table_file_list.html", "files", found=response, following=following)


class Schemas:
    """The page of a table's columns and partitioning, which its catalog is asked for."""

    def __init__(self, limiter: ReadLimiter[snapshots_pb.TableMetadata]) -> None:
        self._limiter = limiter

    async def show(self, visit: PageRequest) -> Page:
        """Columns and partitioning, if they were read of the table's known state."""
        table = await table_of(visit)
        return table_page(table, "table_schema.html", "schema", found=self._limiter.recall(_key(table)))

    async def read(self, visit: PageRequest) -> Redirect:
        """Read the table's metadata now, and redirect to what it says."""
        table = await table_of(visit)
        request = snapshots_pb.GetTableMetadataRequest(table=table.table)
        async with self._limiter.reading(f"the metadata of {table.table}", command("table", "schema", table.table)):
            metadata = await visit.ask(request, snapshots_pb.TableMetadata)
        self._limiter.remember(_key(table), metadata)
        return Redirect(to_table(table.table, table.table_id, "schema"))


def _sizes(digest: kept.TableDigest) -> Chart | None:
    """The histogram from the first size that files have to the last; None while no file was read."""
    if not digest.read_ms:
        return None
    bins = [
        SizeCounts(size.from_bytes, (size.data_files, size.position_delete_files, size.equality_delete_files))
        for size in digest.sizes
    ]
    return histogram(bins, _KINDS, digest.target_bytes, "Files by size")


SNAPSHOTS = 1000  # that are read
_SHOWN = 100  # of them in the table below the timeline
#: Totals of a snapshot's summary, as Iceberg's writers keep them.
_TOTALS: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("data files", "total-data-files", format_count),
    ("delete files", "total-delete-files", format_count),
    ("rows, deletes not subtracted", "total-records", format_count),
    ("bytes", "total-files-size", format_bytes),
)


@dataclass(frozen=True, slots=True)
class ReadSnapshots:
    """Snapshots as they were read at a time, and what an expiry would have decided then; or why it would not."""

    found: pb.ListSnapshotsResponse
    at_ms: int
    retention: snapshots_pb.Retention
    refused: str


class Snapshots:
    """The page of snapshots, and the read that fills it."""

    def __init__(self, limiter: ReadLimiter[ReadSnapshots]) -> None:
        self._limiter = limiter

    async def show(self, visit: PageRequest) -> Page:
        """What was read of the snapshots of the table's known state, and two of them compared."""
        query, table = visit.query, await table_of(visit)
        seen = self._limiter.recall(_key(table))
        snapshots = seen.found.snapshots if seen else ()
        return table_page(
            table,
            "table_snapshots.html",
            "snapshots",
            seen=seen,
            chart=timeline([_moment(item) for item in snapshots], "Snapshots over time, branches and tags as lanes"),
            snapshots=snapshots[:_SHOWN],
            process_id=PROCESS_ID,
            fates={snapshot.snapshot_id: snapshot for snapshot in seen.retention.snapshots} if seen else {},
            before=query["before"],
            after=query["after"],
            compared=compare(snapshots, query["before"], query["after"]) if seen else (),
        )

    async def read(self, visit: PageRequest) -> Redirect:
        """Read the snapshots and the decisions of the next expiry now, and redirect to them."""
        table = await table_of(visit)
        same = command("table", "snapshots", table.table)
        listing = pb.ListSnapshotsRequest(table=table.table, limit=SNAPSHOTS)
        request, retention, refused = snapshots_pb.GetRetentionRequest(table=table.table), snapshots_pb.Retention(), ""
        async with self._limiter.reading(f"the metadata of {table.table}", same):
            response = await visit.ask(listing, pb.ListSnapshotsResponse)
            try:
                retention = await visit.ask(request, snapshots_pb.Retention)
            except TableRefused as error:
                refused = error.message
        self._limiter.remember(_key(table), ReadSnapshots(response, int(time.time() * 1000), retention, refused))
        return Redirect(to_table(table.table, table.table_id, "snapshots"))


def compare(snapshots: Sequence[pb.Snapshot], before: str, after: str) -> list[tuple[str, str, str, str]]:
    """Totals of two snapshots by their ids, as name, before, after, change; "-" where a writer did not record it.

    Nothing unless both are named. Raises InvalidArgument for an unknown one.
    """
    if not before or not after:
        return []
    by_id = {str(snapshot.snapshot_id): snapshot for snapshot in snapshots}
    for name in (before, after):
        if name not in by_id:
            raise InvalidArgument(f"the table has no snapshot {name!r}", hint="Choose two of its list.")
    rows = []
    for name, key, text in _TOTALS:
        old, new = (_whole(by_id[snapshot].summary.get(key, "")) for snapshot in (before, after))
        change = "-" if old is None or new is None else ("+" if new >= old else "−") + text(abs(new - old))
        rows.append((name, "-" if old is None else text(old), "-" if new is None else text(new), change))
    return rows


def _whole(text: str) -> int | None:
    """A number of a snapshot summary; None if it is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _moment(item: pb.Snapshot) -> Moment:
    return Moment(item.snapshot_id, item.committed_ms, item.operation, PROCESS_ID in item.summary, tuple(item.refs))


def _key(table: pb.Table) -> tuple[object, ...]:
    """Of the state of the table that is known: another commit makes another one."""
    return (table.table_uuid, table.table, table.snapshot_id)
