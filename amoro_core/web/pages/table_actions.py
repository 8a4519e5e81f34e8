"""Actions on a table: enable, disable, block, optimize, verify; each is confirmed first, then sent by a form."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from amoro_core.errors import AmoroError, NotFound, TableBusy, WaitTimeout
from amoro_core.model.clustering import CLUSTER, Strategy
from amoro_core.model.tables import LONGEST_HOLD, OptimizingType
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.pages.framework import TtlStore
from amoro_core.web.pages.page_request import (
    Confirmation,
    Field,
    Page,
    PageRequest,
    Redirect,
    command,
    to,
    to_table,
    whole_number,
)
from amoro_core.web.pages.tables import table_of, table_page

TYPES = tuple(type_.value for type_ in OptimizingType)
#: An action that takes longer goes on, while its visitor goes on to the table.
PATIENCE_S = 15.0
#: Where an answer that began nothing leads to; None: to the table.
Refused = Callable[[pb.Table, pb.OptimizeTableResponse], Redirect | None]
_LONGEST_BLOCK_MINUTES = LONGEST_HOLD // timedelta(minutes=1)


async def ask_enable(visit: PageRequest) -> Page:
    """The confirmation of enabling."""
    table = await table_of(visit)
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


async def enable(visit: PageRequest) -> Redirect:
    """Enable the table."""
    return await _set_enabled(visit, True)


async def ask_disable(visit: PageRequest) -> Page:
    """The confirmation of disabling."""
    table = await table_of(visit)
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


async def disable(visit: PageRequest) -> Redirect:
    """Disable the table."""
    return await _set_enabled(visit, False)


async def ask_block(visit: PageRequest) -> Page:
    """The confirmation of a blocker."""
    table = await table_of(visit)
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


async def block(visit: PageRequest) -> Redirect:
    """Block optimizing of the table for a time."""
    sent, table = await visit.form("minutes", "reason"), await table_of(visit)
    minutes = whole_number(sent["minutes"], "number of minutes", _LONGEST_BLOCK_MINUTES)
    request = pb.BlockTableRequest(table=table.table, hold_ms=(minutes or 0) * 60_000, reason=sent["reason"])
    response = await visit.ask("BlockTable", request, pb.Blocker)
    return Redirect(_path(table), f"{table.table} is blocked by {response.blocker_id}.")


async def ask_unblock(visit: PageRequest) -> Page:
    """The confirmation of releasing the blocker."""
    table, blocker = await table_of(visit), visit.named("blocker")
    return Confirmation(
        f"Release the blocker {blocker}?",
        (f"{table.table} may be optimized again. Whoever took the blocker may still rely on it.",),
        _path(table, "unblock", blocker),
        "Release",
        _path(table),
        command("amoro", "table", "unblock", blocker),
        is_grave=True,
    ).shown()


async def unblock(visit: PageRequest) -> Redirect:
    """Release the blocker."""
    table, blocker = await table_of(visit), visit.named("blocker")
    await visit.ask("ReleaseBlocker", pb.ReleaseBlockerRequest(blocker_id=blocker), pb.Blocker)
    return Redirect(_path(table), f"The blocker {blocker} is released.")


async def ask_optimize(visit: PageRequest) -> Page:
    """The confirmation of optimizing."""
    table = await table_of(visit)
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

    async def optimize(self, visit: PageRequest) -> Redirect:
        """Plan the table and begin; a second request leads to the process of the first."""
        sent, table = await visit.form("type", "where"), await table_of(visit)
        return await self.begin(
            visit, table, pb.OptimizeTableRequest(table=table.table, type=sent["type"], where=sent["where"])
        )

    async def begin(
        self,
        visit: PageRequest,
        table: pb.Table,
        wanted: pb.OptimizeTableRequest,
        refused: Refused = lambda table, answer: None,
        patience_s: float | None = None,
    ) -> Redirect:
        """Request optimizing and redirect to its process; `refused` gives the target if nothing was started."""
        asking = asyncio.ensure_future(visit.ask("OptimizeTable", wanted, pb.OptimizeTableResponse))
        self._planning.add(asking)
        asking.add_done_callback(self._ended)
        ended, _ = await asyncio.wait((asking,), timeout=patience_s or self._patience_s)
        if not ended:
            return Redirect(_path(table), f"{table.table} is being planned; that goes on.", "wait")
        try:
            result = asking.result()
        except TableBusy:
            return await self._at_work(visit, table)
        if elsewhere := refused(table, result):
            return elsewhere
        if not result.process_id:
            return Redirect(
                _path(table), f"Nothing was begun. {result.plan.reason or 'There is nothing to do.'}", "wait"
            )
        text = f"Process {result.process_id} has begun: {result.plan.type}. {result.no_optimizer}".strip()
        return Redirect(to("processes", result.process_id), text, "wait" if result.no_optimizer else "good")

    async def _at_work(self, visit: PageRequest, table: pb.Table) -> Redirect:
        now = await table_of(visit)
        if now.process_id:
            return Redirect(to("processes", now.process_id), "This process works on the table already.", "wait")
        return Redirect(_path(table), f"{table.table} is {now.status.replace('_', ' ')} already.", "wait")

    def _ended(self, asking: "asyncio.Task[pb.OptimizeTableResponse]") -> None:
        self._planning.discard(asking)
        if not asking.cancelled():
            asking.exception()  # without a waiting visitor the table shows it


async def _set_enabled(visit: PageRequest, enabled: bool) -> Redirect:
    table = await table_of(visit)
    request = pb.SetTableEnabledRequest(table=table.table, enabled=enabled)
    now = await visit.ask("SetTableEnabled", request, pb.Table)
    if now.enabled != enabled:
        return Redirect(_path(table), f"It is {'' if now.enabled else 'not '}optimized: {now.enabled_origin}.", "wait")
    return Redirect(_path(table), f"{table.table} is {'optimized from now on' if enabled else 'only observed now'}.")


def _path(table: pb.Table, *parts: str) -> str:
    return to_table(table.table, table.table_id, *parts)


PLANNING_S = 60.0
_STRATEGIES = tuple(one.value for one in Strategy)


class Plans:
    """Previews of plans, and their execution."""

    def __init__(self, requests: Requests, deadline_s: float = PLANNING_S) -> None:
        self._requests = requests
        self._deadline_s = deadline_s

    async def show(self, visit: PageRequest) -> Page:
        """The form, and the plan that was made, while it is kept."""
        query, table = visit.query(kept=()), await table_of(visit)
        kept = await _kept(visit, table, query["kept"])
        text = kept or pb.SavedPlan()
        return table_page(
            table,
            "table_plan.html",
            "plan",
            kept=kept,
            plan=kept.plan if kept else None,
            is_over=bool(query["kept"]) and kept is None,
            said=text,
            columns=",".join(text.cluster.columns),
            types=(*TYPES, CLUSTER),
            strategies=_STRATEGIES,
            same=_command(table, text),
        )

    async def make(self, visit: PageRequest) -> Redirect:
        """Plan, and redirect to the plan."""
        sent, table = await visit.form("type", "where", "columns", "strategy"), await table_of(visit)
        request = pb.PlanTableRequest(table=table.table, type=sent["type"], where=sent["where"], keep=True)
        columns = [one.strip() for one in sent["columns"].split(",") if one.strip()]
        if columns or sent["strategy"]:
            request.cluster.CopyFrom(pb.ClusterOptions(columns=columns, strategy=sent["strategy"]))
        return _lead(table, await self._plan(visit, request))

    async def carry_out(self, visit: PageRequest) -> Redirect:
        """Optimize as planned; if the plan has changed, redirect to the new one."""
        sent, table = await visit.form("kept"), await table_of(visit)
        request = pb.OptimizeTableRequest(table=table.table, plan_id=sent["kept"])
        return await self._requests.begin(visit, table, request, _changed, self._deadline_s)

    async def _plan(self, visit: PageRequest, request: pb.PlanTableRequest) -> pb.Plan:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await visit.ask("PlanTable", request, pb.Plan)
        except TimeoutError as late:
            raise WaitTimeout(
                f"{request.table} was not planned within {self._deadline_s:g} s",
                hint=f"The command line waits longer: {command('amoro', 'plan', request.table, '--explain')}",
            ) from late


async def _kept(visit: PageRequest, table: pb.Table, plan_id: str) -> pb.SavedPlan | None:
    if not plan_id:
        return None
    try:
        return await visit.ask("GetSavedPlan", pb.GetSavedPlanRequest(table=table.table, plan_id=plan_id), pb.SavedPlan)
    except NotFound:
        return None


def _changed(table: pb.Table, answer: pb.OptimizeTableResponse) -> Redirect | None:
    if not answer.changes:
        return None
    if table.process_id:  # a second click: what the first one has begun is in no other plan
        return Redirect(to("processes", table.process_id), "This process works on the table already.", "wait")
    return _lead(table, answer.plan, "The plan has changed: nothing was begun.")


def _lead(table: pb.Table, result: pb.Plan, notice: str = "") -> Redirect:
    return Redirect(to_table(table.table, table.table_id, "plan", kept=result.plan_id), notice, "wait")


def _command(table: pb.Table, text: pb.SavedPlan) -> str:
    options = {
        "--type": text.type,
        "--where": text.where,
        "--columns": ",".join(text.cluster.columns),
        "--strategy": text.cluster.strategy,
    }
    given = [word for name, value in options.items() if value for word in (name, value)]
    return command("amoro", "plan", table.table, *given, "--explain")


VERIFY_DEADLINE_S = 600.0
#: A verification that takes longer goes on, while its visitor looks again later.
VERIFY_PATIENCE_S = 10.0
VERIFICATION_LASTS = timedelta(hours=1)
_MOST_VERIFICATIONS = 50
_MOST_PARTITIONS = 200  # on the page, of each comparison
_LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Verifying:
    """A requested verification and its result."""

    table_id: int
    request: pb.VerifyTableRequest
    answer: "asyncio.Task[pb.Verification]"


class Verifications:
    """Verifications with a time limit; results are kept for an hour."""

    def __init__(self, patience_s: float = VERIFY_PATIENCE_S, deadline_s: float = VERIFY_DEADLINE_S) -> None:
        self._patience_s = patience_s
        self._deadline_s = deadline_s
        self._kept: TtlStore[Verifying] = TtlStore(_MOST_VERIFICATIONS, VERIFICATION_LASTS)
        self._running: set[asyncio.Task[pb.Verification]] = set()

    async def ask(self, visit: PageRequest) -> Page:
        """The confirmation of a verification; with a key its result."""
        query, table = visit.query(before=(), after=(), kept=()), await table_of(visit)
        if query["kept"]:
            return self._found(table, query["kept"])
        request = _verify_request(table, query)
        target = to_table(table.table, table.table_id, "verify")
        effects = (
            f"The rows of {table.table} {_between(request)} are read and compared, partition by partition, and every "
            "live file is looked for. Data files that both have are not read.",
            f"Nothing is changed. It ends after {self._deadline_s / 60:g} minutes; the command line waits longer.",
        )
        fields = tuple(Field(name, "", query[name], "hidden") for name in ("before", "after"))
        return Confirmation(
            f"Verify {table.table}?", effects, target, "Verify", _path(table), _verify_command(request), fields
        ).shown()

    async def begin(self, visit: PageRequest) -> Redirect:
        """Verify, and redirect to the result."""
        sent, table = await visit.form("before", "after"), await table_of(visit)
        request = _verify_request(table, sent)
        answer = asyncio.ensure_future(self._verify(visit, request))
        self._running.add(answer)
        answer.add_done_callback(self._ended)
        key = self._kept.add(Verifying(table.table_id, request, answer))
        await asyncio.wait((answer,), timeout=self._patience_s)
        return Redirect(to_table(table.table, table.table_id, "verify", kept=key))

    async def _verify(self, visit: PageRequest, request: pb.VerifyTableRequest) -> pb.Verification:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await visit.ask("VerifyTable", request, pb.Verification)
        except TimeoutError as late:
            raise WaitTimeout(
                f"{request.table} was not verified within {self._deadline_s:g} s",
                hint=f"The command line waits longer: {_verify_command(request)}",
            ) from late

    def _ended(self, answer: "asyncio.Task[pb.Verification]") -> None:
        self._running.discard(answer)
        if not answer.cancelled():
            answer.exception()  # shown on the page of the result

    def _found(self, table: pb.Table, key: str) -> Page:
        kept = self._kept.find(key)
        if kept is not None and kept.table_id != table.table_id:
            kept = None
        result, error = None, None
        if kept is not None and kept.answer.done():
            try:
                result = kept.answer.result()
            except AmoroError as raised:
                error = raised
        request = kept.request if kept is not None else pb.VerifyTableRequest(table=table.table)
        return table_page(
            table,
            "table_verification.html",
            "",
            is_over=kept is None,
            found=result,
            error=error,
            comparisons=[(one, list(_partitions(one))) for one in result.comparisons] if result else [],
            most=_MOST_PARTITIONS,
            again=to_table(table.table, table.table_id, "verify", kept=key),
            same=_verify_command(request),
        )


def _partitions(item: pb.Comparison) -> Iterator[pb.ComparedPartition]:
    """The partitions to show, those that differ first."""
    left = _MOST_PARTITIONS
    for equal in (False, True):
        for one in item.partitions:
            if one.equal == equal and left:
                left -= 1
                yield one


def _verify_request(table: pb.Table, given: dict[str, str]) -> pb.VerifyTableRequest:
    before, after = (whole_number(given[name], "snapshot", _LARGEST_ID) or 0 for name in ("before", "after"))
    return pb.VerifyTableRequest(table=table.table, before=before, after=after)


def _between(request: pb.VerifyTableRequest) -> str:
    if request.before and request.after:
        return f"in the snapshots {request.before} and {request.after}"
    return "before and after its last optimizing"


def _verify_command(request: pb.VerifyTableRequest) -> str:
    named = (("--before", request.before), ("--after", request.after))
    return command("amoro", "verify", request.table, *(word for name, id_ in named if id_ for word in (name, str(id_))))
