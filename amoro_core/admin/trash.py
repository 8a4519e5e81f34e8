"""Condemned files that are not deleted yet."""

from amoro_core.admin.messages.values import milliseconds
from amoro_core.admin.services import Call, Services
from amoro_core.model.paging import Window
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.trash import Trash, require_confirmed


def list_trash(services: Services, request: pb.ListTrashRequest, call: Call) -> pb.ListTrashResponse:
    """Condemned files by process, the next to be deleted first."""
    table_id = services.tables.id_of(services.catalogs.resolve(request.table)) if request.table else None
    page = services.trash.page(table_id, Window(request.limit, request.after))
    return pb.ListTrashResponse(trash=map(_message, page.items), next=page.next, total=page.total)


def show_trash(services: Services, request: pb.ShowTrashRequest, call: Call) -> pb.ShowTrashResponse:
    """The files that a process has condemned."""
    shown = services.trash.show(request.process_id, Window(request.limit, request.after))
    page = shown.files
    files = (
        pb.CondemnedFile(
            path=file.path,
            kind=file.kind.value,
            size_bytes=file.size_bytes or 0,
            modified_ms=milliseconds(file.modified_at),
            reason=file.reason,
            status=status.value,
            moved_to=place,
        )
        for file, status, place in page.items
    )
    return pb.ShowTrashResponse(trash=_message(shown.trash), files=files, next=page.next, total=page.total)


def restore_trash(services: Services, request: pb.RestoreTrashRequest, call: Call) -> pb.Trash:
    """Restore the files that a process has condemned."""
    return _message(services.trash.restore(request.process_id))


def hurry_trash(services: Services, request: pb.HurryTrashRequest, call: Call) -> pb.HurryTrashResponse:
    """Make all condemned files of the table due for the next emptying."""
    identifier = services.catalogs.resolve(request.table)
    require_confirmed(identifier, request.confirm)
    files, size = services.trash.hurry(services.tables.id_of(identifier))
    return pb.HurryTrashResponse(table=str(identifier), files=files, bytes=size)


def _message(trash: Trash) -> pb.Trash:
    return pb.Trash(
        process_id=trash.process.process_id,
        table=str(trash.table),
        table_id=trash.process.table_id,
        action=trash.process.type,
        files=trash.files,
        bytes=trash.bytes,
        purge_ms=milliseconds(trash.purge_at),
        deleting_files=trash.deleting_files,
    )
