"""SQL on tables: a statement, its result, and what ends it."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from starlette.responses import Response
from starlette.routing import Route

from amoro_core.documents.json_documents import rows_csv
from amoro_core.errors import AmoroError, NotFound
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.pages.framework import MOST_CHOICES, Page, PageRequest, Redirect, Site, TtlStore, command, to
from amoro_core.web.pages.table_actions import BackgroundTasks

#: A statement that takes longer goes on, while its page refreshes itself.
PATIENCE_S = 2.0
_LASTS = timedelta(hours=1)
_MOST_KEPT = 50
_MOST_SHOWN = 200  # rows on the page


@dataclass(frozen=True, slots=True)
class _Sent:
    """A statement that was sent, and its answer; other visitors do not see it."""

    visitor: str
    request: pb.RunStatementRequest
    answer: "asyncio.Task[pb.StatementResult]"


def routes(site: Site) -> Sequence[Route]:
    """The page of statements, and its forms."""
    statements = Statements()
    return (
        *site.confirmed("/sql", statements.show, statements.run, "statement", statement=(), kept=()),
        site.action("/sql/{kept}/cancel", statements.cancel),
        site.page("/sql/{kept}/rows.csv", statements.download),
    )


class Statements:
    """Statements that visitors have sent; results are kept for an hour."""

    def __init__(self) -> None:
        self._kept: TtlStore[_Sent] = TtlStore(_MOST_KEPT, _LASTS)
        self._running = BackgroundTasks()

    async def show(self, visit: PageRequest) -> Page:
        """The editor; with a key also what the statement found, or that it runs."""
        kept, result, error = visit.query["kept"], None, None
        asked = self._find(visit, kept) if kept else None
        is_running = asked is not None and not asked.answer.done()
        if asked is not None and not is_running:
            try:
                result = asked.answer.result()
            except AmoroError as raised:
                error = raised
        request = pb.ListTablesRequest(limit=MOST_CHOICES)
        tables = await visit.ask("ListTables", request, pb.ListTablesResponse)
        statement = asked.request.statement if asked is not None else visit.query["statement"]
        values = {
            "statement": statement,
            "kept": kept,
            "is_running": is_running,
            "is_over": bool(kept) and asked is None,
            "result": result,
            "failure": error,
            "most": _MOST_SHOWN,
            "tables": [table.table for table in tables.tables],
            "same": command("sql", "--execute", statement or "SELECT count(*) FROM catalog.database.table"),
        }
        return Page("sql.html", "SQL", values, is_live=is_running)

    async def run(self, visit: PageRequest) -> Redirect:
        """Send the statement, and redirect to its result."""
        request = pb.RunStatementRequest(statement=visit.form["statement"], statement_id=str(uuid.uuid4()))
        answer = self._running.start(visit.ask("RunStatement", request, pb.StatementResult))
        await asyncio.wait((answer,), timeout=PATIENCE_S)
        return Redirect(to("sql", kept=self._kept.add(_Sent(_visitor(visit), request, answer))))

    async def cancel(self, visit: PageRequest) -> Redirect:
        """End the statement."""
        kept = visit.named("kept")
        if (asked := self._find(visit, kept)) is not None:
            request = pb.CancelStatementRequest(statement_id=asked.request.statement_id)
            await visit.ask("CancelStatement", request, pb.CancelStatementResponse)
            await asyncio.wait((asked.answer,), timeout=PATIENCE_S)
        return Redirect(to("sql", kept=kept))

    async def download(self, visit: PageRequest) -> Response:
        """All rows of the result as a file. Raises NotFound when it is not kept."""
        asked = self._find(visit, visit.named("kept"))
        if asked is None or not asked.answer.done() or asked.answer.exception() is not None:
            raise NotFound("no result is kept there", hint="Run the statement again.")
        headers = {"Content-Disposition": 'attachment; filename="rows.csv"'}
        return Response(rows_csv(asked.answer.result()), media_type="text/csv", headers=headers)

    def _find(self, visit: PageRequest, kept: str) -> _Sent | None:
        asked = self._kept.find(kept)
        return asked if asked is not None and asked.visitor == _visitor(visit) else None


def _visitor(visit: PageRequest) -> str:
    """Who asks; pages are shown to accounts alone."""
    caller: str = visit.request.state.principal.caller
    return caller
