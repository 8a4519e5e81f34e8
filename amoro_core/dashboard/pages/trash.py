"""Condemned files that are not deleted yet: lists, restoring, and deleting sooner."""

import shlex

from starlette.routing import Route

from amoro_core.dashboard.pages.confirming import Confirmation, Field
from amoro_core.dashboard.pages.lists import ROWS, Listed
from amoro_core.dashboard.pages.site import Site
from amoro_core.dashboard.pages.urls import to
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.documents.quantities import format_bytes, many
from amoro_core.protocol import admin_pb2 as pb

_FILES = 100  # of one process


def routes(site: Site) -> list[Route]:
    """The pages of trash, and the forms that restore or hurry it."""
    return [
        site.page("/trash", show_trash),
        site.page("/trash/hurry", ask_to_hurry),
        site.action("/trash/hurry", hurry),
        site.page("/trash/{process}", show_condemned),
        site.page("/trash/{process}/restore", ask_to_restore),
        site.action("/trash/{process}/restore", restore),
    ]


async def show_trash(visit: Visit) -> Shown:
    """Condemned files by process, the next to be deleted first."""
    asked = visit.query(table=(), after=())
    request = pb.ListTrashRequest(table=asked["table"], limit=ROWS, after=asked["after"])
    found = await visit.ask("ListTrash", request, pb.ListTrashResponse)
    filters = {"table": asked["table"]}
    listed = Listed("/trash", "processes", filters, len(found.trash), found.total, found.next, asked["after"])
    values = {"trash": found.trash, "list": listed, "table": asked["table"]}
    return Shown("trash.html", "Trash", values, subjects=(("trash", ""),))


async def show_condemned(visit: Visit) -> Shown:
    """Files that a process has condemned, a hundred on a page."""
    after = visit.query(after=())["after"]
    found = await _found(visit, _FILES, after)
    process_id = found.trash.process_id
    listed = Listed(to("trash", process_id), "files", {}, len(found.files), found.total, found.next, after)
    values = {"trash": found.trash, "files": found.files, "list": listed}
    return Shown("condemned.html", f"Trash of {process_id}", values)


async def ask_to_restore(visit: Visit) -> Shown:
    """What restoring the files will do."""
    visit.query()
    found = (await _found(visit, 1)).trash
    path = to("trash", found.process_id)
    effects = (
        f"{many(found.files, 'file')} of {found.table} ({format_bytes(found.bytes)}) are kept where they are, and are "
        "not deleted any more.",
        "No snapshot names them afterwards either: to bring rows back, undo the process itself.",
    )
    command = f"amoro trash restore {found.process_id}"
    return Confirmation("Restore these files?", effects, f"{path}/restore", "Restore", path, command).shown()


async def restore(visit: Visit) -> Gone:
    """Keep the files that the process has condemned."""
    await visit.form()
    found = await visit.ask("RestoreTrash", pb.RestoreTrashRequest(process_id=visit.named("process")), pb.Trash)
    return Gone("/trash", f"{many(found.files, 'file')} of {found.table} are restored.")


async def ask_to_hurry(visit: Visit) -> Shown:
    """What deleting a table's condemned files sooner will do."""
    table = visit.query(table=())["table"]
    effects = (
        f"Every condemned file of {table} is deleted at the next emptying, without the days that are left to take it "
        "back. Deleted files can't be restored.",
    )
    fields = (
        Field("table", "Table", table, "hidden"),
        Field("confirm", f"Type {table} to confirm", is_needed=True),
    )
    command = shlex.join(["amoro", "trash", "empty", table, "--now", "--confirm", table])
    return Confirmation(
        "Delete it now?", effects, "/trash/hurry", "Delete", to("trash", table=table), command, fields, True
    ).shown()


async def hurry(visit: Visit) -> Gone:
    """Make the table's condemned files due at once."""
    typed = await visit.form("table", "confirm")
    request = pb.HurryTrashRequest(table=typed["table"], confirm=typed["confirm"])
    found = await visit.ask("HurryTrash", request, pb.HurryTrashResponse)
    return Gone(to("trash", table=found.table), f"{many(found.files, 'file')} are due for deletion now.", "wait")


async def _found(visit: Visit, files: int, after: str = "") -> pb.ShowTrashResponse:
    request = pb.ShowTrashRequest(process_id=visit.named("process"), limit=files, after=after)
    return await visit.ask("ShowTrash", request, pb.ShowTrashResponse)
