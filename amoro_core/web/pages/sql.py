"""SQL on tables: a statement, its result, and what ends it."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from starlette.responses import Response
from starlette.routing import Route

from amoro_core.documents.json_documents import rows_csv
from amoro_core.errors import AmoroError, NotFound
from amoro_core.model.tables import parse_table
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.app_context import context_of
from amoro_core.web.pages.framework import (
    MOST_CHOICES,
    STATUSES,
    Page,
    PageRequest,
    Redirect,
    Site,
    TtlStore,
    command,
    to,
)
from amoro_core.web.pages.table_actions import BackgroundTasks
from amoro_core.web.rest import requests

#: A statement that takes longer goes on, while its page refreshes itself.
PATIENCE_S = 2.0
_MOST_KEPT, _LASTS = 20, timedelta(hours=1)  # results, each of at most 8 MiB
_MOST_SHOWN = 200  # rows on the page


@dataclass(frozen=True, slots=True)
class _Sent:
    """A statement that was sent, and its answer; other visitors do not see it."""

    visitor: str
    request: pb.RunStatementRequest
    answer: "asyncio.Task[pb.StatementResult]"

    @property
    def failure(self) -> AmoroError | None:
        """Why there is no result."""
        error = self.answer.exception() if self.answer.done() else None
        return None if error is None else requests.as_amoro_error(error)


def routes(site: Site) -> Sequence[Route]:
    """The page of statements, and its forms."""
    statements = Statements()
    return (
        site.page("/sql", statements.show, statement=(), kept=()),
        site.action("/sql", statements.run, "statement"),
        site.action("/sql/{statement_id}/cancel", statements.cancel, "kept"),
        site.page("/sql/{kept}/rows.csv", statements.download),
    )


class Statements:
    """Statements that visitors have sent, and their results for a while."""

    def __init__(self) -> None:
        self._kept: TtlStore[_Sent] = TtlStore(_MOST_KEPT, _LASTS)
        self._running = BackgroundTasks()

    async def show(self, visit: PageRequest) -> Page:
        """The editor; with a key also what the statement found, or that it runs."""
        return await self._page(visit, visit.query["kept"], visit.query["statement"])

    async def run(self, visit: PageRequest) -> Page | Redirect:
        """Send the statement, and redirect to its result; a refused one is shown at once."""
        request = pb.RunStatementRequest(statement=visit.form["statement"], statement_id=str(uuid.uuid4()))
        sent = _Sent(_visitor(visit), request, self._running.start(visit.ask(request, pb.StatementResult)))
        key = self._kept.add(sent)
        await asyncio.wait((sent.answer,), timeout=PATIENCE_S)
        if failure := sent.failure:
            return replace(await self._page(visit, key), status=STATUSES[failure.exit_status])
        return Redirect(to("sql", kept=key))

    async def cancel(self, visit: PageRequest) -> Redirect:
        """End the statement."""
        request, key = pb.CancelStatementRequest(statement_id=visit.named("statement_id")), visit.form["kept"]
        await visit.ask(request, pb.CancelStatementResponse)
        if (sent := self._find(visit, key)) is not None:
            await asyncio.wait((sent.answer,), timeout=PATIENCE_S)
        return Redirect(to("sql", kept=key))

    async def download(self, visit: PageRequest) -> Response:
        """All rows of the result as a file. Raises NotFound when it is not kept."""
        sent = self._find(visit, visit.named("kept"))
        if sent is None or not sent.answer.done() or sent.failure:
            raise NotFound("no result is kept there", hint="Run the statement again.")
        text = await asyncio.to_thread(rows_csv, sent.answer.result())
        return Response(text, media_type="text/csv", headers={"Content-Disposition": "attachment; filename=rows.csv"})

    async def _page(self, visit: PageRequest, key: str, statement: str = "") -> Page:
        sent = self._find(visit, key)
        tables = await visit.ask(pb.ListTablesRequest(limit=MOST_CHOICES), pb.ListTablesResponse)
        statement = sent.request.statement if sent else statement
        values = {
            "is_on": context_of(visit.request).terminal,
            "sent": sent,
            "statement": statement,
            "kept": key,
            "most": _MOST_SHOWN,
            "tables": {table.table: _quoted(table.table) for table in tables.tables},
            "same": command("sql", "-e", statement or "SELECT count(*) FROM lake.db.orders"),
        }
        return Page("sql.html", "SQL", values, is_live=sent is not None and not sent.answer.done())

    def _find(self, visit: PageRequest, key: str) -> _Sent | None:
        sent = self._kept.find(key)
        return sent if sent is not None and sent.visitor == _visitor(visit) else None


def _visitor(visit: PageRequest) -> str:
    """Who asks; pages are shown to accounts alone."""
    caller: str = visit.request.state.principal.caller
    return caller


def _quoted(name: str) -> str:
    """A table's name as SQL has it."""
    table = parse_table(name)
    return ".".join('"' + part.replace('"', '""') + '"' for part in (table.catalog, *table.in_catalog))
