"""Calls of operations: authorization, audit, deadlines, and threads for work that may block."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import Message

from amoro_core.admin import (
    access,
    catalogs,
    clustering,
    groups,
    history,
    maintenance,
    optimizing,
    processes,
    status,
    tables,
)
from amoro_core.admin.context import Call, Services, require, target_table
from amoro_core.errors import Conflict, TableNotFound, UnknownToken, WaitTimeout
from amoro_core.model import metrics
from amoro_core.model.history_events import Audited
from amoro_core.model.principals import Channel, Principal, Role
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.text_sanitizing import MASK, briefly, is_secret, printable, without_secrets
from amoro_core.notifier import Changes, wait_for
from amoro_core.protocol.operations import OPERATIONS, QUICK, TOUCHING, Operation

Function = Callable[[Services, Any, Call], Any]

_MODULES = (access, catalogs, clustering, groups, history, maintenance, optimizing, processes, status, tables)


def _function(method: str) -> Function:
    """The function of the method: GetTable is done by `get_table`. Raises LookupError without one."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower()
    (named,) = (vars(module)[name] for module in _MODULES if name in vars(module))
    function: Function = named
    return function


FUNCTIONS: Mapping[str, Function] = {method: _function(method) for method in OPERATIONS}
#: For requests with `wait_ms`: whether this answer, after the one before, ends the wait.
HAS_CHANGED: Mapping[str, Callable[[Any, Any], bool]] = {"GetProcess": processes.has_moved}
#: The answer at the deadline, where that is no error.
LATE: Mapping[str, Callable[[Any], Any]] = {"CheckCatalog": catalogs.late_check}


T = TypeVar("T")


class BlockingExecutor:
    """Runs blocking calls outside the request pool, a few at once; the process ends without waiting for them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places = threading.BoundedSemaphore(most)

    def run(self, work: Callable[[], T]) -> "Future[T]":
        """The future answer. Raises Conflict, and does not begin, when too many calls run."""
        if not self._places.acquire(blocking=False):
            raise Conflict(f"{self._most} such requests wait for an answer already", hint="Try again in a moment.")
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # it can't be cancelled from now on
        threading.Thread(target=self._run, args=(work, future), name="blocking", daemon=True).start()
        return future

    def _run(self, work: Callable[[], T], future: "Future[T]") -> None:
        try:
            answer = work()
        except BaseException as error:
            self._places.release()
            future.set_exception(error)
        else:
            self._places.release()
            future.set_result(answer)


_OBJECTS = ("table", "process_id", "blocker_id", "lease_id", "optimizer_id", "name", "id", "path", "user")
_MOST = 40  # parameters
_ITEMS = 20  # of a list
_LONGEST = 300  # characters of a value
#: SQL is kept as a history: so much that a page of 1,000 calls is below gRPC's limit, whatever the characters.
_LONGER = {"statement": 4000}
#: Contents of files, of which only the size is kept.
_CONTENTS = frozenset({"site_files"})


def audited_call(principal: Principal, method: str, request: Message, is_dry_run: bool) -> Audited:
    """The audit entry of the call."""
    values = parameters(request)
    named = (str(getattr(request, name, "")) for name in _OBJECTS)
    return Audited(principal, method, _short(without_secrets(next(filter(None, named), ""))), values, is_dry_run)


def parameters(request: Message) -> dict[str, str]:
    """The fields that are set, as texts; those of messages within it and entries of maps by their dotted names."""
    fields = dict(_fields(request, ""))
    if len(fields) <= _MOST:
        return fields
    more = len(fields) - _MOST
    return {**dict(list(fields.items())[:_MOST]), "…": f"{more} more"}


def _fields(message: Message, prefix: str) -> "list[tuple[str, str]]":
    entries: list[tuple[str, str]] = []
    for field, value in message.ListFields():
        name, kind = f"{prefix}{field.name}", field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            entries += [_entry(field.name, name, key, value[key]) for key in sorted(value)]
        elif field.is_repeated:
            items = [str(len(item.ListFields())) + " fields" if kind else str(item) for item in value[:_ITEMS]]
            more = [f"and {len(value) - _ITEMS} more"] if len(value) > _ITEMS else []
            entries.append((name, _safe(field.name, ", ".join([*items, *more]))))
        elif kind is not None:
            entries += _fields(value, f"{name}.")
        else:
            entries.append((name, _safe(field.name, str(value).lower() if isinstance(value, bool) else str(value))))
    return entries


def _entry(field: str, name: str, key: Any, value: Any) -> tuple[str, str]:
    text = f"{len(str(value).encode())} bytes" if field in _CONTENTS else _safe(str(key), str(value))
    return f"{name}.{_short(str(key))}", text


def _safe(key: str, value: str) -> str:
    return MASK if is_secret(key) else _short(without_secrets(value), _LONGER.get(key, _LONGEST))


def _short(text: str, most: int = _LONGEST) -> str:
    return briefly(printable(text), most)


MAX_WAIT_S = 20.0


class Operations:
    """The operations over these services, for any transport. Errors are AmoroErrors."""

    def __init__(self, services: Services, changes: Changes, pool: Executor) -> None:
        """`changes` fires when a process may have changed."""
        self._services = services
        self._changes = changes
        self._pool = pool
        self._executors = {
            name: BlockingExecutor(item.most_at_once) for name, item in OPERATIONS.items() if item.is_blocking
        }

    async def admit(self, token: str, way: Channel, address: str = "", stated: str = "") -> Principal:
        """The account of a token that came that way; `stated` is the person's name as the client states it.

        Raises UnknownToken, WaitTimeout.
        """
        future = asyncio.get_running_loop().run_in_executor(self._pool, self._services.tokens.admit, token)
        try:
            principal = await asyncio.wait_for(future, QUICK.total_seconds())
        except TimeoutError as late:
            raise WaitTimeout("the coordinator is busy: the token was not looked at", hint="Try again.") from late
        except UnknownToken:
            self._services.meters.count(metrics.LOGIN_FAILURES)
            raise
        return replace(principal, way=way, address=address, said=stated)

    async def refuse(self, method: str, caller: Principal, error: UnknownToken) -> None:
        """Audit a call by an unknown caller, if the method changes something.

        `caller` has channel, address and the name that the client states. The request is not kept: anybody can send it.
        """
        operation = OPERATIONS.get(method)  # None: of a protocol of others
        if operation is not None and not operation.is_audited:
            return
        call = Audited(caller, method, "", is_dry_run=operation is not None and operation.is_dry_run)
        refuse = partial(self._services.auditing.refuse_unknown, call, error)
        await asyncio.get_running_loop().run_in_executor(self._pool, refuse)

    async def call(
        self, method: str, request: Any, principal: Principal, require_seen: Callable[[Message], None] | None = None
    ) -> Any:
        """The answer of the method to that account.

        `require_seen` is asked by updates, within their transaction, of what they change: `Call.require_seen`.
        A call that changes something is written down in the audit, a refused one, too; one that can't be is not made.
        Raises NotAllowed, StoreFailed, WaitTimeout at the deadline, and the errors of the operation. Work that has
        begun runs on after the deadline, except where it asks `Call.is_given_up`.
        """
        operation, given_up = OPERATIONS[method], threading.Event()
        look = partial(self._look, method, operation, request, Call(principal, given_up.is_set, require_seen))
        try:
            async with asyncio.timeout(operation.deadline.total_seconds()) as limit:
                return await self._until_changed(method, request, look)
        except TimeoutError as late:
            if not limit.expired():
                raise
            if method in LATE:
                return LATE[method](request)
            raise WaitTimeout(
                f"{method} did not end within {operation.deadline.total_seconds():g} s",
                hint="What was begun goes on: look at it before you ask again." if operation.changes else "",
            ) from late
        finally:
            given_up.set()

    async def perform(
        self, method: str, caller: Principal, role: Role, on: Sequence[TableIdentifier], work: Callable[[Services], T]
    ) -> T:
        """`work` as the account, in a thread, where it has the role for each of the tables.

        With a method's name it changes something, and is written down under it in the audit. Raises like `call`.
        """

        def do() -> T:
            audited = Audited(caller, method, _short(", ".join(map(str, on))))
            with self._services.auditing.audited(audited) if method else nullcontext():
                require(caller, method or "reading", role, None)
                for table in on:
                    require(caller, method, role, partial(TableIdentifier, table.catalog, table.namespace, table.name))
                return work(self._services)

        future = asyncio.get_running_loop().run_in_executor(self._pool, do)
        try:
            return await asyncio.wait_for(asyncio.shield(future), TOUCHING.total_seconds())
        except TimeoutError as late:
            raise WaitTimeout(f"{method or 'reading'} did not end in time, and goes on") from late

    async def _until_changed(self, method: str, request: Any, look: "partial[Any]") -> Any:
        loop, operation = asyncio.get_running_loop(), OPERATIONS[method]
        if operation.is_blocking:
            return await asyncio.wrap_future(self._executors[method].run(look))
        if method not in HAS_CHANGED:
            return await loop.run_in_executor(self._pool, look)
        before, deadline = None, time.monotonic() + min(request.wait_ms / 1000, MAX_WAIT_S)
        while True:
            changed = self._changes.current()
            answer = await loop.run_in_executor(self._pool, look)
            seconds = deadline - time.monotonic()
            if seconds <= 0 or self._changes.are_over or HAS_CHANGED[method](before, answer):
                return answer
            before = answer
            await wait_for(changed, seconds)

    def _look(self, method: str, operation: Operation, request: Any, call: Call) -> Any:
        if not operation.is_audited:
            return self._work(method, operation, request, call)
        with self._services.auditing.audited(audited_call(call.principal, method, request, operation.is_dry_run)):
            return self._work(method, operation, request, call)

    def _work(self, method: str, operation: Operation, request: Any, call: Call) -> Any:
        on, principal = operation.on, call.principal
        try:
            require(principal, method, operation.role, on and partial(target_table, self._services, on, request))
            return FUNCTIONS[method](self._services, request, call)
        except TableNotFound as error:
            self._suggest(error, known_only=principal.way is Channel.PAGE)
            raise

    def _suggest(self, error: TableNotFound, *, known_only: bool) -> None:
        # No page waits for a catalog.
        find = self._services.tables.similar
        if isinstance(error.table, TableIdentifier) and (name := find(error.table, known_only=known_only)):
            error.hint = f"Did you mean {name}?"
