"""The overview: what is wrong first, then what goes on and what happened last."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amoro_core.dashboard.charts.svg import Chart
from amoro_core.dashboard.pages.over_time import RANGES, Asked, drawn, found_series, latest, total
from amoro_core.dashboard.pages.urls import with_query
from amoro_core.dashboard.pages.visits import Shown, Visit
from amoro_core.documents.quantities import format_bytes, format_count, format_duration
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import monitoring_pb2 as monitoring

_RUNNING, _EVENTS = 10, 20
_FRESH_S, _DRAWN_S = 1.0, 30.0
_STEP_S = 600
_SUBJECTS = (("tables", ""), ("processes", ""), ("events", ""))
#: Series of the last day, and what their charts are called.
_CHARTS = {
    "backlog-age": "How long the oldest waiting table has waited, 24 h",
    "processes-active": "Processes that have not ended, 24 h",
    "bytes-rewritten": "Bytes rewritten, 24 h",
    "files-removed": "Files fewer by what was committed, 24 h",
}


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure, and where its rows are."""

    label: str
    figure: str
    url: str
    note: str = ""


class Overview:
    """The page, whose counts are at most a second old and asked for once at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._counted_at = -_FRESH_S
        self._tiles: tuple[Tile, ...] = ()
        self._drawing = asyncio.Lock()
        self._drawn_at = -_DRAWN_S
        self._drawn: tuple[Sequence[Chart], Sequence[Tile]] = ((), ())

    async def show(self, visit: Visit) -> Shown:
        """Conditions, tiles, running processes, last events."""
        visit.query()
        held = await visit.ask("ListConditions", monitoring.ListConditionsRequest(), monitoring.ListConditionsResponse)
        charts, moved = await self._charted(visit)
        active = await visit.ask(
            "ListProcesses", pb.ListProcessesRequest(status="running", limit=_RUNNING), pb.ListProcessesResponse
        )
        events = await visit.ask("ListEvents", journal.ListEventsRequest(limit=_EVENTS), journal.ListEventsResponse)
        values = {
            "conditions": held.conditions,
            "tiles": (*await self._counted(visit), *moved),
            "processes": active.processes,
            "running": active.total,
            "events": events.events,
            "charts": charts,
            "same": "amoro status",
        }
        return Shown("overview.html", "Overview", values, subjects=_SUBJECTS)

    async def _charted(self, visit: Visit) -> tuple[Sequence[Chart], Sequence[Tile]]:
        """The last day as charts, and in tiles what was done in it."""
        async with self._drawing:
            if time.monotonic() - self._drawn_at >= _DRAWN_S:
                asked = Asked(tuple(_CHARTS), int(time.time() * 1000), RANGES["24h"], step_s=_STEP_S)
                found = await found_series(visit, asked)
                charts = [drawn(found, asked, name, title) for name, title in _CHARTS.items()]
                self._drawn, self._drawn_at = (charts, _moved(found)), time.monotonic()
            return self._drawn

    async def _counted(self, visit: Visit) -> tuple[Tile, ...]:
        async with self._lock:
            if time.monotonic() - self._counted_at >= _FRESH_S:
                self._tiles = await _tiles(visit)
                self._counted_at = time.monotonic()
            return self._tiles


def _moved(found: journal.GetSeriesResponse) -> Sequence[Tile]:
    return (
        Tile("rewritten in 24 h", format_bytes(total(found, "bytes-rewritten")), "/processes?status=success"),
        Tile("fewer files in 24 h", format_count(total(found, "files-removed")), "/processes?status=success"),
        Tile("the longest wait", format_duration(round(latest(found, "backlog-age") * 1000)), "/queue"),
    )


async def _tiles(visit: Visit) -> tuple[Tile, ...]:
    status = await visit.ask("GetStatus", pb.GetStatusRequest(), pb.GetStatusResponse)
    counts = [
        await _tables(visit, label, filters)
        for label, filters in {
            "enabled tables": {"enabled": "yes"},
            "waiting for a plan": {"status": "pending"},
            "refused": {"status": "refused"},
            "health below 50": {"health_below": "50"},
        }.items()
    ]
    return (
        Tile("tables", format_count(status.tables), "/tables"),
        *counts,
        Tile("running processes", format_count(status.running_processes), "/processes?status=running"),
        Tile("optimizers", format_count(status.optimizers), "/optimizers"),
    )


async def _tables(visit: Visit, label: str, filters: Mapping[str, str]) -> Tile:
    request = pb.ListTablesRequest(
        limit=1,
        status=filters.get("status", ""),
        enabled=True if "enabled" in filters else None,
        health_below=int(filters.get("health_below", "0")),
    )
    found = await visit.ask("ListTables", request, pb.ListTablesResponse)
    return Tile(
        label, format_count(found.total) + ("" if found.total_is_exact else "+"), f"/tables{with_query(filters)}"
    )
