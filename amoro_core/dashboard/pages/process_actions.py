"""Actions on a process: cancel, start, confirm, undo."""

import asyncio
import shlex

from starlette.routing import Route

from amoro_core.dashboard.pages.confirming import Confirmation, Field
from amoro_core.dashboard.pages.maintenance import planned
from amoro_core.dashboard.pages.processes import found_process
from amoro_core.dashboard.pages.site import Site
from amoro_core.dashboard.pages.urls import to
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.errors import WaitTimeout
from amoro_core.protocol import admin_pb2 as pb

PREVIEW_S = 60.0


def routes(site: Site) -> list[Route]:
    """The confirmations and the forms of the actions."""
    actions = {
        "cancel": (ask_to_cancel, cancel),
        "start": (ask_to_start, start),
        "confirm": (ask_to_confirm, confirm),
        "undo": (ask_to_undo, undo),
    }
    return [
        site.action("/processes/{process}/undo/preview", preview_undo),
    ] + [
        route
        for name, (ask, act) in actions.items()
        for route in (
            site.page(f"/processes/{{process}}/{name}", ask),
            site.action(f"/processes/{{process}}/{name}", act),
        )
    ]


async def ask_to_cancel(visit: Visit) -> Shown:
    """What cancelling the process will do."""
    process = await found_process(visit)
    path = to("processes", process.process_id)
    effects = (
        f"The {process.type} process on {process.table} ends. What its {process.tasks_done} finished tasks have "
        "written is removed, and the table stays as it is.",
        "A commit that was sent already can't be cancelled; then nothing happens.",
    )
    command = f"amoro process cancel {process.process_id}"
    return Confirmation(
        f"Cancel {process.process_id}?", effects, f"{path}/cancel", "Cancel the process", path, command
    ).shown()


async def cancel(visit: Visit) -> Gone:
    """Cancel the process."""
    await visit.form()
    request = pb.CancelProcessRequest(process_id=visit.named("process"))
    process = await visit.ask("CancelProcess", request, pb.Process)
    return Gone(to("processes", process.process_id), f"The process is {process.status}.")


async def ask_to_start(visit: Visit) -> Shown:
    """What starting the stored plan will do."""
    process = await found_process(visit)
    path = to("processes", process.process_id)
    effects = (f"The plan of {process.tasks_total} tasks on {process.table} begins: optimizers take its tasks.",)
    command = f"amoro process start {process.process_id}"
    return Confirmation(f"Start {process.process_id}?", effects, f"{path}/start", "Start", path, command).shown()


async def start(visit: Visit) -> Gone:
    """Start a plan that was stored."""
    await visit.form()
    request = pb.StartProcessRequest(process_id=visit.named("process"))
    process = await visit.ask("StartProcess", request, pb.Process)
    return Gone(to("processes", process.process_id), "It has started.")


async def ask_to_confirm(visit: Visit) -> Shown:
    """What letting a held process go on will do."""
    process = await found_process(visit)
    path = to("processes", process.process_id)
    effects = (
        f"The process was held: {process.reason}",
        f"It is planned anew and does its work on {process.table}, also what the guard has stopped.",
    )
    command = shlex.join(
        ["amoro", "table", "maintain", process.table, "--action", process.type, "--confirm", process.table]
    )
    name = Field("confirm", f"Type {process.table} to confirm", is_needed=True)
    return Confirmation(
        f"Let {process.process_id} go on?", effects, f"{path}/confirm", "Let it go on", path, command, (name,), True
    ).shown()


async def confirm(visit: Visit) -> Gone:
    """Let a held process go on."""
    typed = await visit.form("confirm")
    process = await found_process(visit)
    request = pb.MaintainTableRequest(table=process.table, action=process.type, confirm=typed["confirm"])
    answer = await visit.ask("ConfirmMaintenance", request, pb.MaintainTableResponse)
    return Gone(to("processes", answer.process_id or process.process_id), answer.held or "It goes on.")


async def ask_to_undo(visit: Visit) -> Shown:
    """What undoing the process will do, as far as that is known without its catalog; the dry run says more."""
    process = await found_process(visit)
    path = to("processes", process.process_id)
    effects = (
        f"A process of its own takes back what this one did to {process.table}, and keeps what others have written.",
        "Where that is not possible any more it says why, and changes nothing.",
        "First a dry run shows what it would do. It reads the table, and changes nothing.",
    )
    command = shlex.join(["amoro", "undo", process.process_id, "--dry-run"])
    return Confirmation(
        f"Undo {process.process_id}?", effects, f"{path}/undo/preview", "Show what it would do", path, command
    ).shown()


async def preview_undo(visit: Visit) -> Shown:
    """What undoing the process would do now, and the form that does it."""
    await visit.form()
    process = visit.named("process")
    same = shlex.join(["amoro", "undo", process])
    try:
        async with asyncio.timeout(PREVIEW_S):
            answer = await visit.ask("PreviewUndo", pb.UndoRequest(process_id=process), pb.MaintainTableResponse)
    except TimeoutError as late:
        raise WaitTimeout(
            f"what undoing {process} would do was not found within {PREVIEW_S:g} s",
            hint=f"The command line waits longer: {same} --dry-run",
        ) from late
    values = {"answer": answer, "plan": planned(answer.document), "process_id": process, "same": same}
    return Shown("undo_preview.html", f"Dry run of undoing {process}", values)


async def undo(visit: Visit) -> Gone:
    """Begin a process that takes this one back."""
    await visit.form()
    request = pb.UndoRequest(process_id=visit.named("process"))
    answer = await visit.ask("UndoProcess", request, pb.MaintainTableResponse)
    if not answer.process_id:
        return Gone(to("processes", visit.named("process")), answer.reason or "There is nothing to undo.", "wait")
    return Gone(to("processes", answer.process_id), "This process undoes the other one.")
