"""Actions on a table: enable, disable, block, optimize, verify; each is confirmed first, then sent by a form."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from amoro_core.errors import AmoroError, NotFound, TableBusy
from amoro_core.model.clustering import CLUSTER, Strategy
from amoro_core.model.tables import LONGEST_HOLD, OptimizingType
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.pages.framework import (
    Answer,
    Field,
    Page,
    PageRequest,
    Redirect,
    TtlStore,
    command,
    confirm_page,
    deadline,
    to,
    to_table,
    whole_number,
)
from amoro_core.web.pages.tables import table_of, table_page

#: An action that takes longer goes on, while its visitor goes on to the table.
PATIENCE_S = 15.0
#: Where an answer that began nothing leads to; None: to the table.
Refused = Callable[[pb.Table, pb.OptimizeTableResponse], Redirect | None]
_LONGEST_BLOCK_MINUTES = LONGEST_HOLD // timedelta(minutes=1)


async def ask_enable(visit: PageRequest) -> Page:
    """The confirmation of enabling."""
    table = await table_of(visit)
    return confirm_page(
        f"Enable {table.table}?",
        (
            "The coordinator will optimize this table by itself from now on: whenever its files need it, they are "
            "rewritten and committed as a new snapshot.",
            "No row changes. Snapshots before it stay until they expire.",
        ),
        "Enable",
        _path(table),
        command("table", "enable", table.table),
    )


async def ask_disable(visit: PageRequest) -> Page:
    """The confirmation of disabling."""
    table = await table_of(visit)
    effects = ["The coordinator will only observe this table from now on."]
    if table.process_id:
        effects.append(f"Its process {table.process_id} is cancelled unless it is committing already.")
    return confirm_page(
        f"Disable {table.table}?",
        effects,
        "Disable",
        _path(table),
        command("table", "disable", table.table),
        is_grave=True,
    )


async def set_enabled(visit: PageRequest, *, enabled: bool) -> Redirect:
    """Enable or disable the table."""
    table = await table_of(visit)
    await visit.ask(pb.SetTableEnabledRequest(table=table.table, enabled=enabled), pb.Table)
    return Redirect(_path(table), f"{table.table} is {'optimized from now on' if enabled else 'only observed now'}.")


async def ask_block(visit: PageRequest) -> Page:
    """The confirmation of a blocker."""
    table = await table_of(visit)
    return confirm_page(
        f"Block {table.table}?",
        ("No optimizing begins on this table until the time is over or the blocker is released.",),
        "Block",
        _path(table),
        command("table", "block", table.table, "--for", "60m", "--reason", "WHY"),
        (
            Field("minutes", "For how many minutes", "60", "number", is_needed=True),
            Field("reason", "Why, for those who see it", is_needed=True),
        ),
    )


async def block(visit: PageRequest) -> Redirect:
    """Block optimizing of the table for a time."""
    table = await table_of(visit)
    minutes = whole_number(visit.form["minutes"], "number of minutes", _LONGEST_BLOCK_MINUTES)
    request = pb.BlockTableRequest(table=table.table, hold_ms=minutes * 60_000, reason=visit.form["reason"])
    response = await visit.ask(request, pb.Blocker)
    return Redirect(_path(table), f"{table.table} is blocked by {response.blocker_id}.")


async def ask_unblock(visit: PageRequest) -> Page:
    """The confirmation of releasing the blocker."""
    table, blocker = await table_of(visit), visit.named("blocker")
    return confirm_page(
        f"Release the blocker {blocker}?",
        (f"{table.table} may be optimized again. Whoever took the blocker may still rely on it.",),
        "Release",
        _path(table),
        command("table", "unblock", blocker),
        is_grave=True,
    )


async def unblock(visit: PageRequest) -> Redirect:
    """Release the blocker."""
    table, blocker = await table_of(visit), visit.named("blocker")
    await visit.ask(pb.ReleaseBlockerRequest(blocker_id=blocker), pb.Blocker)
    return Redirect(_path(table), f"The blocker {blocker} is released.")


async def ask_optimize(visit: PageRequest) -> Page:
    """The confirmation of optimizing."""
    table = await table_of(visit)
    return confirm_page(
        f"Optimize {table.table} now?",
        (
            "The table is planned now. If there is something to do, its files are rewritten by the optimizers of the "
            f"group {table.group}, checked row by row, and committed as a new snapshot.",
            "No row changes. The preview of a plan shows what would be rewritten.",
        ),
        "Optimize now",
        _path(table),
        command("optimize", table.table),
        (
            Field("type", "Type", values=OptimizingType, any="what is due"),
            Field("where", "Only partitions where (a condition; empty: all)"),
        ),
    )


class Requests:
    """Requests of optimizing: planning that takes long goes on while its visitor goes on."""

    def __init__(self) -> None:
        self._planning = BackgroundTasks()

    async def optimize(self, visit: PageRequest) -> Redirect:
        """Plan the table and begin; a second request leads to the process of the first."""
        table = await table_of(visit)
        return await self.begin(visit, table, pb.OptimizeTableRequest(table=table.table, **visit.form))

    async def begin(
        self,
        visit: PageRequest,
        table: pb.Table,
        wanted: pb.OptimizeTableRequest,
        refused: Refused = lambda table, answer: None,
        patience_s: float = PATIENCE_S,
    ) -> Redirect:
        """Request optimizing and redirect to its process; `refused` gives the target if nothing was started."""
        call = self._planning.start(visit.ask(wanted, pb.OptimizeTableResponse))
        ended, _ = await asyncio.wait((call,), timeout=patience_s)
        if not ended:
            return Redirect(_path(table), f"{table.table} is being planned; that goes on.", "wait")
        try:
            result = call.result()
        except TableBusy:
            now = await table_of(visit)
            if now.process_id:
                return _at_work(now)
            return Redirect(_path(table), f"{table.table} is {now.status.replace('_', ' ')} already.", "wait")
        if elsewhere := refused(table, result):
            return elsewhere
        if not result.process_id:
            return Redirect(
                _path(table), f"Nothing was begun. {result.plan.reason or 'There is nothing to do.'}", "wait"
            )
        text = f"Process {result.process_id} has begun: {result.plan.type}. {result.no_optimizer}".strip()
        return Redirect(to("processes", result.process_id), text, "wait" if result.no_optimizer else "good")


class BackgroundTasks:
    """Calls that go on after their visitor was answered; their errors are shown elsewhere."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()  # the event loop itself holds tasks weakly

    def start(self, call: Coroutine[Any, Any, Answer]) -> "asyncio.Task[Answer]":
        task = asyncio.create_task(call)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # else asyncio logs it as never retrieved


def _at_work(table: pb.Table) -> Redirect:
    return Redirect(to("processes", table.process_id), "This process works on the table already.", "wait")


def _path(table: pb.Table, *parts: str, **query: str) -> str:
    return to_table(table.table, table.table_id, *parts, **query)


PLANNING_S = 60.0


class Plans:
    """Previews of plans, and their execution."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def show(self, visit: PageRequest) -> Page:
        """The form, and the plan that was made, while it is kept."""
        key, table = visit.query["kept"], await table_of(visit)
        saved = await _saved_plan(visit, table, key)
        return table_page(
            table,
            "table_plan.html",
            "plan",
            saved=saved,
            plan=saved.plan if saved else None,
            is_over=bool(key) and saved is None,
            form=saved or pb.SavedPlan(),
            types=(*OptimizingType, CLUSTER),
            strategies=Strategy,
        )

    async def make(self, visit: PageRequest) -> Redirect:
        sent, table = visit.form, await table_of(visit)
        request = pb.PlanTableRequest(table=table.table, type=sent["type"], where=sent["where"], keep=True)
        columns = [name.strip() for name in sent["columns"].split(",") if name.strip()]
        if columns or sent["strategy"]:
            request.cluster.CopyFrom(pb.ClusterOptions(columns=columns, strategy=sent["strategy"]))
        same = command("plan", request.table, "--explain")
        async with deadline(PLANNING_S, f"{request.table} was not planned", same):
            plan = await visit.ask(request, pb.Plan)
        return _to_plan(table, plan)

    async def carry_out(self, visit: PageRequest) -> Redirect:
        """Optimize as planned; if the plan has changed, redirect to the new one."""
        table = await table_of(visit)
        request = pb.OptimizeTableRequest(table=table.table, plan_id=visit.form["kept"])
        return await self._requests.begin(visit, table, request, _changed, PLANNING_S)


async def _saved_plan(visit: PageRequest, table: pb.Table, plan_id: str) -> pb.SavedPlan | None:
    if not plan_id:
        return None
    try:
        return await visit.ask(pb.GetSavedPlanRequest(table=table.table, plan_id=plan_id), pb.SavedPlan)
    except NotFound:
        return None


def _changed(table: pb.Table, answer: pb.OptimizeTableResponse) -> Redirect | None:
    if not answer.changes:
        return None
    if table.process_id:  # a second click: what the first one has begun is in no other plan
        return _at_work(table)
    return _to_plan(table, answer.plan, "The plan has changed: nothing was begun.")


def _to_plan(table: pb.Table, result: pb.Plan, notice: str = "") -> Redirect:
    return Redirect(_path(table, "plan", kept=result.plan_id), notice, "wait")


VERIFY_DEADLINE_S = 600.0
#: A verification that takes longer goes on, while its visitor looks again later.
VERIFY_PATIENCE_S = 10.0
VERIFICATION_LASTS = timedelta(hours=1)
_MOST_VERIFICATIONS = 50
_LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Verification:
    """A requested verification and its result."""

    table_id: int
    request: pb.VerifyTableRequest
    answer: "asyncio.Task[pb.Verification]"


class Verifications:
    """Verifications with a time limit; results are kept for an hour."""

    def __init__(self) -> None:
        self._results: TtlStore[_Verification] = TtlStore(_MOST_VERIFICATIONS, VERIFICATION_LASTS)
        self._running = BackgroundTasks()

    async def ask(self, visit: PageRequest) -> Page:
        """The confirmation of a verification; with a key its result."""
        query, table = visit.query, await table_of(visit)
        if query["kept"]:
            return self._result_page(table, query["kept"])
        request = _verify_request(table, query)
        effects = (
            f"The rows of {table.table} {_between(request)} are read and compared, partition by partition, and every "
            "live file is looked for. Data files that both have are not read.",
            f"Nothing is changed. It ends after {VERIFY_DEADLINE_S / 60:g} min; the command line waits longer.",
        )
        fields = tuple(Field(name, "", query[name], "hidden") for name in ("before", "after"))
        return confirm_page(f"Verify {table.table}?", effects, "Verify", _path(table), _verify_command(request), fields)

    async def begin(self, visit: PageRequest) -> Redirect:
        """Verify, and redirect to the result."""
        table = await table_of(visit)
        request = _verify_request(table, visit.form)
        answer = self._running.start(self._verify(visit, request))
        key = self._results.add(_Verification(table.table_id, request, answer))
        await asyncio.wait((answer,), timeout=VERIFY_PATIENCE_S)
        return Redirect(_path(table, "verify", kept=key))

    async def _verify(self, visit: PageRequest, request: pb.VerifyTableRequest) -> pb.Verification:
        async with deadline(VERIFY_DEADLINE_S, f"{request.table} was not verified", _verify_command(request)):
            return await visit.ask(request, pb.Verification)

    def _result_page(self, table: pb.Table, key: str) -> Page:
        stored = self._results.find(key)
        if stored is not None and stored.table_id != table.table_id:
            stored = None
        result, error = None, None
        if stored is not None and stored.answer.done():
            try:
                result = stored.answer.result()
            except AmoroError as raised:
                error = raised
        return table_page(
            table,
            "table_verification.html",
            "",
            is_over=stored is None,
            found=result,
            error=error,
            request=stored.request if stored is not None else pb.VerifyTableRequest(table=table.table),
            again=_path(table, "verify", kept=key),
        )


def _verify_request(table: pb.Table, given: dict[str, str]) -> pb.VerifyTableRequest:
    before, after = (whole_number(given[name], "snapshot", _LARGEST_ID) for name in ("before", "after"))
    return pb.VerifyTableRequest(table=table.table, before=before, after=after)


def _between(request: pb.VerifyTableRequest) -> str:
    if request.before and request.after:
        return f"in the snapshots {request.before} and {request.after}"
    return "before and after its last optimizing"


def _verify_command(request: pb.VerifyTableRequest) -> str:
    return command("verify", request.table, before=request.before, after=request.after)
