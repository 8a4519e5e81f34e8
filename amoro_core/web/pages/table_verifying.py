"""Verifying a table from its page: the rows before and after optimizing are read and compared, a few tables at once."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from amoro_core.errors import AmoroError, WaitTimeout
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.pages.framework import TtlStore
from amoro_core.web.pages.page_request import (
    Confirmation,
    Field,
    Page,
    PageRequest,
    Redirect,
    command,
    to_table,
    whole_number,
)
from amoro_core.web.pages.table import known_table, on_table

DEADLINE_S = 600.0
#: A verification that takes longer goes on, while its visitor looks again later.
PATIENCE_S = 10.0
KEPT_FOR = timedelta(hours=1)
_MOST = 50
_MOST_PARTITIONS = 200  # on the page, of each comparison
_LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Verifying:
    """A verification that was asked for, and what answers it."""

    table_id: int
    request: pb.VerifyTableRequest
    answer: "asyncio.Task[pb.Verification]"


class Verifications:
    """Verifications of tables, which end in time; what they found is kept for an hour."""

    def __init__(self, patience_s: float = PATIENCE_S, deadline_s: float = DEADLINE_S) -> None:
        self._patience_s = patience_s
        self._deadline_s = deadline_s
        self._kept: TtlStore[Verifying] = TtlStore(_MOST, KEPT_FOR)
        self._running: set[asyncio.Task[pb.Verification]] = set()

    async def ask(self, visit: PageRequest) -> Page:
        """What verifying will do; with the key of one that was asked for, what it has found."""
        asked, table = visit.query(before=(), after=(), kept=()), await known_table(visit)
        if asked["kept"]:
            return self._found(table, asked["kept"])
        request = _request(table, asked)
        target = to_table(table.table, table.table_id, "verify")
        effects = (
            f"The rows of {table.table} {_between(request)} are read and compared, partition by partition, and every "
            "live file is looked for. Data files that both have are not read.",
            f"Nothing is changed. It ends after {self._deadline_s / 60:g} minutes; the command line waits longer.",
        )
        fields = tuple(Field(name, "", asked[name], "hidden") for name in ("before", "after"))
        return Confirmation(
            f"Verify {table.table}?", effects, target, "Verify", _path(table), _command(request), fields
        ).shown()

    async def begin(self, visit: PageRequest) -> Redirect:
        """Verify, and lead to what was found, or to where it will be."""
        sent, table = await visit.form("before", "after"), await known_table(visit)
        request = _request(table, sent)
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
                hint=f"The command line waits longer: {_command(request)}",
            ) from late

    def _ended(self, answer: "asyncio.Task[pb.Verification]") -> None:
        self._running.discard(answer)
        if not answer.cancelled():
            answer.exception()  # told where somebody looks

    def _found(self, table: pb.Table, key: str) -> Page:
        kept = self._kept.find(key)
        if kept is not None and kept.table_id != table.table_id:
            kept = None
        found, error = None, None
        if kept is not None and kept.answer.done():
            try:
                found = kept.answer.result()
            except AmoroError as raised:
                error = raised
        request = kept.request if kept is not None else pb.VerifyTableRequest(table=table.table)
        return on_table(
            table,
            "table_verification.html",
            "",
            is_over=kept is None,
            found=found,
            error=error,
            comparisons=[(one, list(_shown(one))) for one in found.comparisons] if found else [],
            most=_MOST_PARTITIONS,
            again=to_table(table.table, table.table_id, "verify", kept=key),
            same=_command(request),
        )


def _shown(item: pb.Comparison) -> Iterator[pb.ComparedPartition]:
    """The partitions to show, those that differ first."""
    left = _MOST_PARTITIONS
    for equal in (False, True):
        for one in item.partitions:
            if one.equal == equal and left:
                left -= 1
                yield one


def _request(table: pb.Table, given: dict[str, str]) -> pb.VerifyTableRequest:
    before, after = (whole_number(given[name], "snapshot", _LARGEST_ID) or 0 for name in ("before", "after"))
    return pb.VerifyTableRequest(table=table.table, before=before, after=after)


def _between(request: pb.VerifyTableRequest) -> str:
    if request.before and request.after:
        return f"in the snapshots {request.before} and {request.after}"
    return "before and after its last optimizing"


def _command(request: pb.VerifyTableRequest) -> str:
    named = (("--before", request.before), ("--after", request.after))
    return command("amoro", "verify", request.table, *(word for name, id_ in named if id_ for word in (name, str(id_))))


def _path(table: pb.Table) -> str:
    return to_table(table.table, table.table_id)
