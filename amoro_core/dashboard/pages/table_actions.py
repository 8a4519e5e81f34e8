"""What may be done with a table: enable, disable, block, optimize; each is confirmed first, and done by a form."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from amoro_core.dashboard.pages.confirming import Confirmation, Field
from amoro_core.dashboard.pages.table import known_table
from amoro_core.dashboard.pages.urls import command, to, to_table
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit, whole_number
from amoro_core.errors import TableBusy
from amoro_core.model.blockers import LONGEST_HOLD
from amoro_core.model.tables import OptimizingType
from amoro_core.protocol import admin_pb2 as pb

TYPES = tuple(type_.value for type_ in OptimizingType)
#: An action that takes longer goes on, while its visitor goes on to the table.
PATIENCE_S = 15.0
#: Where an answer that began nothing leads to; None: to the table.
Refused = Callable[[pb.Table, pb.OptimizeTableResponse], Gone | None]
_LONGEST_BLOCK_MINUTES = LONGEST_HOLD // timedelta(minutes=1)


async def ask_enable(visit: Visit) -> Shown:
    """What enabling would do."""
    table = await known_table(visit)
    return Confirmation(
        f"Enable {table.table}?",
        (
            "The coordinator will optimize this table by itself from now on: whenever its files need it, they are "
            "rewritten and committed as a new snapshot.",
            "No row changes. Snapshots before it stay until they expire.",
        ),
        _path(table, "enable"),
        "Enable",
        _path(table),
        command("amoro", "table", "enable", table.table),
    ).shown()


async def enable(visit: Visit) -> Gone:
    """Enable the table."""
    return await _set_enabled(visit, True)


async def ask_disable(visit: Visit) -> Shown:
    """What disabling would do."""
    table = await known_table(visit)
    running = (
        f"Its process {table.process_id} is cancelled unless it is committing already." if table.process_id else ""
    )
    return Confirmation(
        f"Disable {table.table}?",
        ("The coordinator will only observe this table from now on.", *filter(None, (running,))),
        _path(table, "disable"),
        "Disable",
        _path(table),
        command("amoro", "table", "disable", table.table),
        is_grave=True,
    ).shown()


async def disable(visit: Visit) -> Gone:
    """Disable the table."""
    return await _set_enabled(visit, False)


async def ask_block(visit: Visit) -> Shown:
    """What a blocker would do."""
    table = await known_table(visit)
    return Confirmation(
        f"Block {table.table}?",
        ("No optimizing begins on this table until the time is over or the blocker is released.",),
        _path(table, "block"),
        "Block",
        _path(table),
        command("amoro", "table", "block", table.table, "--for", "60m", "--reason", "WHY"),
        (
            Field("minutes", "For how many minutes", "60", "number", is_needed=True),
            Field("reason", "Why, for those who see it", is_needed=True),
        ),
    ).shown()


async def block(visit: Visit) -> Gone:
    """Block optimizing of the table for a time."""
    sent, table = await visit.form("minutes", "reason"), await known_table(visit)
    minutes = whole_number(sent["minutes"], "number of minutes", _LONGEST_BLOCK_MINUTES)
    asked = pb.BlockTableRequest(table=table.table, hold_ms=(minutes or 0) * 60_000, reason=sent["reason"])
    made = await visit.ask("BlockTable", asked, pb.Blocker)
    return Gone(_path(table), f"{table.table} is blocked by {made.blocker_id}.")


async def ask_unblock(visit: Visit) -> Shown:
    """What releasing the blocker would do."""
    table, blocker = await known_table(visit), visit.named("blocker")
    return Confirmation(
        f"Release the blocker {blocker}?",
        (f"{table.table} may be optimized again. Whoever took the blocker may still rely on it.",),
        _path(table, "unblock", blocker),
        "Release",
        _path(table),
        command("amoro", "table", "unblock", blocker),
        is_grave=True,
    ).shown()


async def unblock(visit: Visit) -> Gone:
    """Release the blocker."""
    table, blocker = await known_table(visit), visit.named("blocker")
    await visit.ask("ReleaseBlocker", pb.ReleaseBlockerRequest(blocker_id=blocker), pb.Blocker)
    return Gone(_path(table), f"The blocker {blocker} is released.")


async def ask_optimize(visit: Visit) -> Shown:
    """What optimizing would do."""
    table = await known_table(visit)
    return Confirmation(
        f"Optimize {table.table} now?",
        (
            "The table is planned now. If there is something to do, its files are rewritten by the optimizers of the "
            f"group {table.group}, checked row by row, and committed as a new snapshot.",
            "No row changes. The preview of a plan shows what would be rewritten.",
        ),
        _path(table, "optimize"),
        "Optimize now",
        _path(table),
        command("amoro", "optimize", table.table),
        (
            Field("type", "Type", values=TYPES, any="what is due"),
            Field("where", "Only partitions where (a condition; empty: all)"),
        ),
    ).shown()


class Requests:
    """Requests of optimizing: planning that takes long goes on while its visitor goes on."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._planning: set[asyncio.Task[pb.OptimizeTableResponse]] = set()

    async def optimize(self, visit: Visit) -> Gone:
        """Plan the table and begin; a second request leads to the process of the first."""
        sent, table = await visit.form("type", "where"), await known_table(visit)
        return await self.begin(
            visit, table, pb.OptimizeTableRequest(table=table.table, type=sent["type"], where=sent["where"])
        )

    async def begin(
        self,
        visit: Visit,
        table: pb.Table,
        asked: pb.OptimizeTableRequest,
        refused: Refused = lambda table, answer: None,
        patience_s: float | None = None,
    ) -> Gone:
        """Ask for the optimizing, and lead to its process, or where `refused` says for an answer that began nothing."""
        asking = asyncio.ensure_future(visit.ask("OptimizeTable", asked, pb.OptimizeTableResponse))
        self._planning.add(asking)
        asking.add_done_callback(self._ended)
        ended, _ = await asyncio.wait((asking,), timeout=patience_s or self._patience_s)
        if not ended:
            return Gone(_path(table), f"{table.table} is being planned; that goes on.", "wait")
        try:
            made = asking.result()
        except TableBusy:
            return await self._at_work(visit, table)
        if elsewhere := refused(table, made):
            return elsewhere
        if not made.process_id:
            return Gone(_path(table), f"Nothing was begun. {made.plan.reason or 'There is nothing to do.'}", "wait")
        told = f"Process {made.process_id} has begun: {made.plan.type}. {made.no_optimizer}".strip()
        return Gone(to("processes", made.process_id), told, "wait" if made.no_optimizer else "good")

    async def _at_work(self, visit: Visit, table: pb.Table) -> Gone:
        now = await known_table(visit)
        if now.process_id:
            return Gone(to("processes", now.process_id), "This process works on the table already.", "wait")
        return Gone(_path(table), f"{table.table} is {now.status.replace('_', ' ')} already.", "wait")

    def _ended(self, asking: "asyncio.Task[pb.OptimizeTableResponse]") -> None:
        self._planning.discard(asking)
        if not asking.cancelled():
            asking.exception()  # told by the table itself where nobody waits for it


async def _set_enabled(visit: Visit, enabled: bool) -> Gone:
    table = await known_table(visit)
    asked = pb.SetTableEnabledRequest(table=table.table, enabled=enabled)
    now = await visit.ask("SetTableEnabled", asked, pb.Table)
    if now.enabled != enabled:
        return Gone(_path(table), f"It is {'' if now.enabled else 'not '}optimized: {now.enabled_origin}.", "wait")
    return Gone(_path(table), f"{table.table} is {'optimized from now on' if enabled else 'only observed now'}.")


def _path(table: pb.Table, *parts: str) -> str:
    return to_table(table.table, table.table_id, *parts)
