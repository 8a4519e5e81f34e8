"""The plan of a table: made on request, kept for ten minutes, carried out if it is still the plan."""

import asyncio

from amoro_core.dashboard.pages.table import known_table, on_table
from amoro_core.dashboard.pages.table_actions import TYPES, Requests
from amoro_core.dashboard.pages.urls import command, to, to_table
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.errors import NotFound, WaitTimeout
from amoro_core.model.clustering import CLUSTER, Strategy
from amoro_core.protocol import admin_pb2 as pb

PLANNING_S = 60.0
_STRATEGIES = tuple(one.value for one in Strategy)


class Plans:
    """Previews of plans, and their execution."""

    def __init__(self, requests: Requests, deadline_s: float = PLANNING_S) -> None:
        self._requests = requests
        self._deadline_s = deadline_s

    async def show(self, visit: Visit) -> Shown:
        """The form, and the plan that was made, while it is kept."""
        asked, table = visit.query(kept=()), await known_table(visit)
        kept = await _kept(visit, table, asked["kept"])
        said = kept or pb.SavedPlan()
        return on_table(
            table,
            "table_plan.html",
            "plan",
            kept=kept,
            plan=kept.plan if kept else None,
            is_over=bool(asked["kept"]) and kept is None,
            said=said,
            columns=",".join(said.cluster.columns),
            types=(*TYPES, CLUSTER),
            strategies=_STRATEGIES,
            same=_command(table, said),
        )

    async def make(self, visit: Visit) -> Gone:
        """Plan, and lead to what was found."""
        sent, table = await visit.form("type", "where", "columns", "strategy"), await known_table(visit)
        request = pb.PlanTableRequest(table=table.table, type=sent["type"], where=sent["where"], keep=True)
        columns = [one.strip() for one in sent["columns"].split(",") if one.strip()]
        if columns or sent["strategy"]:
            request.cluster.CopyFrom(pb.ClusterOptions(columns=columns, strategy=sent["strategy"]))
        return _lead(table, await self._plan(visit, request))

    async def carry_out(self, visit: Visit) -> Gone:
        """Optimize as planned; if another plan would be made now, lead to that, which says what has changed."""
        sent, table = await visit.form("kept"), await known_table(visit)
        asked = pb.OptimizeTableRequest(table=table.table, plan_id=sent["kept"])
        return await self._requests.begin(visit, table, asked, _changed, self._deadline_s)

    async def _plan(self, visit: Visit, request: pb.PlanTableRequest) -> pb.Plan:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await visit.ask("PlanTable", request, pb.Plan)
        except TimeoutError as late:
            raise WaitTimeout(
                f"{request.table} was not planned within {self._deadline_s:g} s",
                hint=f"The command line waits longer: {command('amoro', 'plan', request.table, '--explain')}",
            ) from late


async def _kept(visit: Visit, table: pb.Table, plan_id: str) -> pb.SavedPlan | None:
    if not plan_id:
        return None
    try:
        return await visit.ask("GetSavedPlan", pb.GetSavedPlanRequest(table=table.table, plan_id=plan_id), pb.SavedPlan)
    except NotFound:
        return None


def _changed(table: pb.Table, answer: pb.OptimizeTableResponse) -> Gone | None:
    if not answer.changes:
        return None
    if table.process_id:  # a second click: what the first one has begun is in no other plan
        return Gone(to("processes", table.process_id), "This process works on the table already.", "wait")
    return _lead(table, answer.plan, "The plan has changed: nothing was begun.")


def _lead(table: pb.Table, made: pb.Plan, notice: str = "") -> Gone:
    return Gone(to_table(table.table, table.table_id, "plan", kept=made.plan_id), notice, "wait")


def _command(table: pb.Table, said: pb.SavedPlan) -> str:
    options = {
        "--type": said.type,
        "--where": said.where,
        "--columns": ",".join(said.cluster.columns),
        "--strategy": said.cluster.strategy,
    }
    given = [word for name, value in options.items() if value for word in (name, value)]
    return command("amoro", "plan", table.table, *given, "--explain")
