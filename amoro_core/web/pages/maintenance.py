"""Pages of maintenance, of actions on processes, and of trash.

Only a table's catalog knows what its actions would do. Forms ask it; the pages themselves never wait for it.
"""

import json
from functools import partial

from starlette.routing import Route

from amoro_core.documents.formatting import format_bytes, many
from amoro_core.errors import InvalidArgument
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.pages.framework import (
    ROWS,
    Field,
    Listed,
    Page,
    PageRequest,
    Redirect,
    Site,
    command,
    confirm_page,
    deadline,
    to,
    to_table,
)
from amoro_core.web.pages.processes import process_of, process_title
from amoro_core.web.pages.tables import table_of, table_page

_WAITING, _ACTIONS = 50, 200


def routes(site: Site) -> list[Route]:
    """The pages of maintenance and trash, and their forms."""
    return [
        site.page("/maintenance", show_maintenance, table=()),
        site.page("/tables/{table}/maintenance", partial(show_table_maintenance, known_only=True)),
        site.action("/tables/{table}/maintenance", partial(show_table_maintenance, known_only=False)),
        site.action("/maintenance/preview", preview, "table", "action"),
        site.action("/maintenance/run", run, "table", "action", "confirm"),
        site.page("/trash", show_trash, table=(), after=()),
        *site.confirmed("/trash/hurry", ask_to_hurry, hurry, "table", "confirm", table=()),
        site.page("/trash/{process}", show_condemned, after=()),
        *site.confirmed("/trash/{process}/restore", ask_to_restore, restore),
    ]


async def show_maintenance(visit: PageRequest) -> Page:
    """Processes that wait for a person, and every action on every table as it is stored."""
    table = visit.query["table"]
    request = pb.ListActionsRequest(table=table, known_only=True, limit=_ACTIONS)
    answer = await visit.ask(request, pb.ListActionsResponse)
    waiting: list[pb.Process] = []
    for status in ("held", "requested"):
        of_status = pb.ListProcessesRequest(status=status, limit=_WAITING)
        waiting += (await visit.ask(of_status, pb.ListProcessesResponse)).processes
    values = {"waiting": waiting, "answer": answer, "table": table}
    return Page("maintenance.html", "Maintenance", values)


async def show_table_maintenance(visit: PageRequest, *, known_only: bool) -> Page:
    """Actions on the table as they are stored; or, by its catalog, each: on or off and why, last and next run."""
    table = await table_of(visit)
    request = pb.ListActionsRequest(table=table.table, known_only=known_only)
    actions = (await visit.ask(request, pb.ListActionsResponse)).actions
    return table_page(table, "table_maintenance.html", "maintenance", actions=actions, is_known_only=known_only)


async def preview(visit: PageRequest) -> Page:
    """A dry run of the action on the table."""
    answer = await visit.ask(pb.MaintainTableRequest(**visit.form), pb.MaintainTableResponse, "PreviewMaintenance")
    values = {"answer": answer, "plan": json.loads(answer.document or "{}")}
    return Page("preview.html", f"Dry run of {answer.action} on {answer.table}", values)


async def run(visit: PageRequest) -> Redirect:
    """Begin the action on the table whose name was typed."""
    typed = visit.form
    if typed["confirm"] != typed["table"]:
        raise InvalidArgument(
            f"{typed['confirm']!r} is not the name of the table",
            hint=f"Type {typed['table']} to run {typed['action']}.",
        )
    request = pb.MaintainTableRequest(table=typed["table"], action=typed["action"])
    answer = await visit.ask(request, pb.MaintainTableResponse)
    if not answer.process_id:
        return Redirect(to_table(answer.table, 0, "maintenance"), f"Nothing to do: {answer.reason}", "wait")
    return Redirect(to("processes", answer.process_id), answer.held or f"{answer.action} has begun.")


PREVIEW_S = 60.0


def process_action_routes(site: Site) -> list[Route]:
    """The confirmations and the forms of the actions on a process."""
    at = "/processes/{process}"
    return [
        *site.confirmed(f"{at}/cancel", ask_to_cancel, cancel),
        *site.confirmed(f"{at}/start", ask_to_start, start),
        *site.confirmed(f"{at}/confirm", ask_to_confirm, confirm, "confirm"),
        site.action(f"{at}/undo/preview", preview_undo),
        *site.confirmed(f"{at}/undo", ask_to_undo, undo),
    ]


async def ask_to_cancel(visit: PageRequest) -> Page:
    """The confirmation of cancelling the process."""
    process = await process_of(visit)
    path = to("processes", process.process_id)
    effects = (
        f"The {process.type} process on {process.table} ends. What its finished tasks have "
        "written is removed, and the table stays as it is.",
        "A commit that was sent already can't be cancelled; then nothing happens.",
    )
    same = f"amoro process cancel {process.process_id}"
    return confirm_page(f"Cancel {process_title(process)}?", effects, "Cancel the process", path, same)


async def cancel(visit: PageRequest) -> Redirect:
    """Cancel the process."""
    process = await visit.ask(pb.CancelProcessRequest(process_id=visit.named("process")), pb.Process)
    return Redirect(to("processes", process.process_id), f"The process is {process.status}.")


async def ask_to_start(visit: PageRequest) -> Page:
    """The confirmation of starting the stored plan."""
    process = await process_of(visit)
    path = to("processes", process.process_id)
    effects = (f"The plan of {many(process.tasks_total, 'task')} on {process.table} begins: optimizers run it.",)
    same = f"amoro process start {process.process_id}"
    return confirm_page(f"Start {process_title(process)}?", effects, "Start", path, same)


async def start(visit: PageRequest) -> Redirect:
    """Start a plan that was stored."""
    process = await visit.ask(pb.StartProcessRequest(process_id=visit.named("process")), pb.Process)
    return Redirect(to("processes", process.process_id), "It has started.")


async def ask_to_confirm(visit: PageRequest) -> Page:
    """The confirmation of letting a held process go on."""
    process = await process_of(visit)
    path = to("processes", process.process_id)
    effects = (
        f"The process was held: {process.reason}",
        f"It is planned anew and does its work on {process.table}, also what the guard has stopped.",
    )
    same = command("table", "maintain", process.table, "--action", process.type, "--confirm", process.table)
    name = Field("confirm", f"Type {process.table} to confirm", is_needed=True)
    return confirm_page(f"Let {process_title(process)} go on?", effects, "Let it go on", path, same, (name,), True)


async def confirm(visit: PageRequest) -> Redirect:
    """Let a held process go on."""
    process = await process_of(visit)
    request = pb.MaintainTableRequest(table=process.table, action=process.type, **visit.form)
    answer = await visit.ask(request, pb.MaintainTableResponse, "ConfirmMaintenance")
    return Redirect(to("processes", answer.process_id or process.process_id), answer.held or "It goes on.")


async def ask_to_undo(visit: PageRequest) -> Page:
    """What undoing the process will do, as far as that is known without its catalog; the dry run says more."""
    process = await process_of(visit)
    path = to("processes", process.process_id)
    effects = (
        f"A new process undoes what this one did to {process.table}, and keeps what others have written.",
        "Where that is not possible any more it says why, and changes nothing.",
        "First a dry run shows what it would do. It reads the table, and changes nothing.",
    )
    same = command("undo", process.process_id, "--dry-run")
    title, target = f"Undo {process_title(process)}?", f"{path}/undo/preview"
    return confirm_page(title, effects, "Show what it would do", path, same, target=target)


async def preview_undo(visit: PageRequest) -> Page:
    """A dry run of undoing the process, and the form that does it."""
    process = visit.named("process")
    same = command("undo", process, "--dry-run")
    async with deadline(PREVIEW_S, f"what undoing {process} would do was not found", same):
        answer = await visit.ask(pb.UndoRequest(process_id=process), pb.MaintainTableResponse, "PreviewUndo")
    title = f"Dry run of undoing {process_title(await process_of(visit))}"
    values = {"answer": answer, "plan": json.loads(answer.document or "{}"), "process_id": process}
    return Page("undo_preview.html", title, values)


async def undo(visit: PageRequest) -> Redirect:
    """Begin a process that takes this one back."""
    answer = await visit.ask(pb.UndoRequest(process_id=visit.named("process")), pb.MaintainTableResponse, "UndoProcess")
    if not answer.process_id:
        return Redirect(to("processes", visit.named("process")), answer.reason or "There is nothing to undo.", "wait")
    return Redirect(to("processes", answer.process_id), "This process undoes the other one.")


_FILES = 100  # of one process


async def show_trash(visit: PageRequest) -> Page:
    """Files marked for deletion by process, the next to be deleted first."""
    response = await visit.ask(pb.ListTrashRequest(**visit.query, limit=ROWS), pb.ListTrashResponse)
    listed = Listed("/trash", "processes", visit.query, response, response.trash)
    return Page("trash.html", "Trash", {"list": listed}, is_live=True)


async def show_condemned(visit: PageRequest) -> Page:
    """Files that a process has condemned, a hundred on a page."""
    response = await _trash_of(visit, _FILES, visit.query["after"])
    trash = response.trash
    listed = Listed(to("trash", trash.process_id), "files", visit.query, response, response.files)
    values = {"trash": trash, "list": listed}
    return Page("condemned.html", f"Files of {trash.table} that {trash.action} marked for deletion", values)


async def ask_to_restore(visit: PageRequest) -> Page:
    """The confirmation of restoring the files."""
    trash = (await _trash_of(visit, 1)).trash
    path = to("trash", trash.process_id)
    effects = (
        f"{many(trash.files, 'file')} of {trash.table} ({format_bytes(trash.bytes)}) will be kept.",
        "No snapshot will name them: to bring rows back, undo the process itself.",
    )
    return confirm_page("Restore these files?", effects, "Restore", path, f"amoro trash restore {trash.process_id}")


async def restore(visit: PageRequest) -> Redirect:
    """Keep the files that the process has condemned."""
    response = await visit.ask(pb.RestoreTrashRequest(process_id=visit.named("process")), pb.Trash)
    return Redirect("/trash", f"Restored {many(response.files, 'file')} of {response.table}.")


async def ask_to_hurry(visit: PageRequest) -> Page:
    """The confirmation of deleting a table's condemned files sooner."""
    table = visit.query["table"]
    effects = (
        f"Every file in the trash of {table} is deleted the next time the trash is emptied, without further waiting. "
        "Deleted files can't be restored.",
    )
    fields = (Field("table", "Table", table, "hidden"), Field("confirm", f"Type {table} to confirm", is_needed=True))
    same = command("trash", "empty", table, "--now", "--confirm", table)
    return confirm_page("Delete it now?", effects, "Delete", to("trash", table=table), same, fields, True)


async def hurry(visit: PageRequest) -> Redirect:
    """Make the table's condemned files due at once."""
    response = await visit.ask(pb.HurryTrashRequest(**visit.form), pb.HurryTrashResponse)
    return Redirect(to("trash", table=response.table), f"{many(response.files, 'file')} due for deletion now.", "wait")


async def _trash_of(visit: PageRequest, files: int, after: str = "") -> pb.ShowTrashResponse:
    request = pb.ShowTrashRequest(process_id=visit.named("process"), limit=files, after=after)
    return await visit.ask(request, pb.ShowTrashResponse)
