"""The plan of a table: made on request, kept for ten minutes, and carried out if it is still the plan."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from amoro_core.dashboard.pages.kept import Kept
from amoro_core.dashboard.pages.table import known_table, on_table
from amoro_core.dashboard.pages.table_actions import TYPES, Requests
from amoro_core.dashboard.pages.urls import command, to_table
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.documents.quantities import many
from amoro_core.errors import InvalidArgument, WaitTimeout
from amoro_core.protocol import admin_pb2 as pb

KEPT_FOR = timedelta(minutes=10)
PLANNING_S = 60.0
_MOST = 100
_MOST_PARTITIONS = 500  # on the page
_MOST_CHANGES = 10


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan with the request that made it, and how it differs from the one before it; () for a first one."""

    request: pb.PlanTableRequest
    plan: pb.Plan
    changes: tuple[str, ...] = ()


class Plans:
    """Previews of plans, and their execution."""

    def __init__(self, requests: Requests, deadline_s: float = PLANNING_S) -> None:
        self._requests = requests
        self._deadline_s = deadline_s
        self._kept: Kept[KeptPlan] = Kept(_MOST, KEPT_FOR)

    async def show(self, visit: Visit) -> Shown:
        """The form, and the plan that was made, while it is kept."""
        asked, table = visit.query(kept=()), await known_table(visit)
        kept = self._kept.find(asked["kept"])
        plan = kept.plan if kept else None
        chosen = [one for one in plan.partitions if one.type] if plan else []
        left = [one for one in plan.partitions if not one.type] if plan else []
        request = kept.request if kept else pb.PlanTableRequest(table=table.table)
        return on_table(
            table,
            "table_plan.html",
            "plan",
            key=asked["kept"],
            is_over=bool(asked["kept"]) and kept is None,
            plan=plan,
            chosen=chosen[:_MOST_PARTITIONS],
            left=left[: max(0, _MOST_PARTITIONS - len(chosen))],
            unshown=max(0, len(chosen) + len(left) - _MOST_PARTITIONS),
            request=request,
            changes=kept.changes if kept else (),
            types=TYPES,
            same=command("amoro", "plan", table.table, *_options(request), "--explain"),
        )

    async def make(self, visit: Visit) -> Gone:
        """Plan, and lead to what was found."""
        sent, table = await visit.form("type", "where"), await known_table(visit)
        request = pb.PlanTableRequest(table=table.table, type=sent["type"], where=sent["where"])
        return self._lead(table, KeptPlan(request, await self._plan(visit, request)))

    async def carry_out(self, visit: Visit) -> Gone:
        """Optimize as planned; if another plan would be made now, lead to that and say what has changed."""
        sent, table = await visit.form("kept"), await known_table(visit)
        kept = self._kept.find(sent["kept"])
        if kept is None or kept.plan.table != table.table:
            raise InvalidArgument(
                "this plan is not kept any more", hint="Plans are kept for 10 minutes: plan it again."
            )
        now = await self._plan(visit, kept.request)
        if changed := changes(kept.plan, now):
            return self._lead(table, KeptPlan(kept.request, now, changed), "The plan has changed: nothing was begun.")
        asked = pb.OptimizeTableRequest(table=table.table, type=kept.request.type, where=kept.request.where)
        return await self._requests.begin(visit, table, asked)

    def _lead(self, table: pb.Table, made: KeptPlan, notice: str = "") -> Gone:
        return Gone(to_table(table.table, table.table_id, "plan", kept=self._kept.add(made)), notice, "wait")

    async def _plan(self, visit: Visit, request: pb.PlanTableRequest) -> pb.Plan:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await visit.ask("PlanTable", request, pb.Plan)
        except TimeoutError as late:
            raise WaitTimeout(
                f"{request.table} was not planned within {self._deadline_s:g} s",
                hint=f"The command line waits longer: {command('amoro', 'plan', request.table, '--explain')}",
            ) from late


def changes(before: pb.Plan, now: pb.Plan) -> tuple[str, ...]:
    """How the plan of now differs from the one before, in sentences; () if the same files would be rewritten."""
    told: list[str] = []
    if before.snapshot_id != now.snapshot_id:
        told.append(f"The table's snapshot is {now.snapshot_id}, it was {before.snapshot_id}.")
    if before.type != now.type:
        told.append(f"The type is {now.type or 'none: there is nothing to do'}, it was {before.type or 'none'}.")
    if before.tasks != now.tasks:
        told.append(f"It has {many(now.tasks, 'task')}, it had {before.tasks:,}.")
    old, new = _by_partition(before), _by_partition(now)
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    told += [_told(key, old.get(key), new.get(key)) for key in differing[:_MOST_CHANGES]]
    if len(differing) > _MOST_CHANGES:
        told.append(f"{len(differing) - _MOST_CHANGES:,} more partitions differ.")
    return tuple(told)


_Key = tuple[int, str]
_Work = tuple[str, int, int]  # type, data files, bytes


def _by_partition(plan: pb.Plan) -> dict[_Key, _Work]:
    return {
        (one.spec_id, one.partition): (one.type, one.data_files, one.input_bytes) for one in plan.partitions if one.type
    }


def _told(key: _Key, before: _Work | None, now: _Work | None) -> str:
    name = f"Partition {key[1]}" if key[1] else "The table"
    if now is None:
        return f"{name} is not rewritten any more."
    if before is None:
        return f"{name} is rewritten, too: {now[0]}, {many(now[1], 'data file')}."
    return f"{name}: {now[0]} of {many(now[1], 'data file')}, it was {before[0]} of {before[1]:,}."


def _options(request: pb.PlanTableRequest) -> list[str]:
    type_ = ["--type", request.type] if request.type else []
    return [*type_, *(["--where", request.where] if request.where else [])]
