"""Calls of operations: authorized by role, run outside of the event loop, bounded by their deadlines."""

import asyncio
import threading
import time
from concurrent.futures import Executor
from functools import partial
from typing import Any

from amoro_core.admin.operations import OPERATIONS, Operation
from amoro_core.admin.services import Call, Services
from amoro_core.changes import Changes, wait_for
from amoro_core.errors import NotAllowed, TableNotFound, UnknownToken, WaitTimeout
from amoro_core.model.tables import TableIdentifier

MAX_WAIT_S = 20.0


class Operations:
    """The operations over these services, for any transport. Errors are AmoroErrors."""

    def __init__(self, services: Services, changes: Changes, pool: Executor) -> None:
        """`changes` fires when a process may have changed."""
        self._services = services
        self._changes = changes
        self._pool = pool

    async def call(self, method: str, request: Any, token: str, user: str = "") -> Any:
        """The answer of the method to a caller with that token; `user` is the caller's name as the client gives it.

        Raises UnknownToken, NotAllowed, WaitTimeout at the deadline, and the errors of the operation. Work that has
        begun runs on after the deadline, except where it asks `Call.is_given_up`.
        """
        operation, given_up = OPERATIONS[method], threading.Event()
        look = partial(self._look, method, operation, request, token, user, given_up)
        try:
            async with asyncio.timeout(operation.deadline.total_seconds()) as limit:
                return await self._until_news(operation, request, look)
        except TimeoutError as late:
            if not limit.expired():
                raise
            raise WaitTimeout(
                f"{method} did not end within {operation.deadline.total_seconds():g} s",
                hint="What was begun goes on: look at it before you ask again." if operation.changes else "",
            ) from late
        finally:
            given_up.set()

    async def _until_news(self, operation: Operation, request: Any, look: "partial[Any]") -> Any:
        loop = asyncio.get_running_loop()
        if operation.is_news is None:
            return await loop.run_in_executor(self._pool, look)
        before, deadline = None, time.monotonic() + min(request.wait_ms / 1000, MAX_WAIT_S)
        while True:
            changed = self._changes.current()
            answer = await loop.run_in_executor(self._pool, look)
            left = deadline - time.monotonic()
            if left <= 0 or self._changes.are_over or operation.is_news(before, answer):
                return answer
            before = answer
            await wait_for(changed, left)

    def _look(
        self, method: str, operation: Operation, request: Any, token: str, user: str, given_up: threading.Event
    ) -> Any:
        name = self._admitted(method, operation, token)
        caller = f"user {user} with the token {name}" if user else f"the token {name}"
        try:
            return operation.work(self._services, request, Call(caller, given_up.is_set))
        except TableNotFound as error:
            self._suggest(error)
            raise

    def _admitted(self, method: str, operation: Operation, token: str) -> str:
        """The name of the token. Raises UnknownToken; NotAllowed for one whose role the method is not for."""
        found = self._services.tokens.find(token)
        if found is None:
            raise UnknownToken("the admin token is wrong", hint="It is in admin.token of the state directory.")
        (name, role), needed = found, operation.role
        if not role.allows(needed):
            raise NotAllowed(
                f"the token {name} has the role {role}; {method} needs the role {needed}",
                hint=f"Give a token with the role {needed}: amoro token create NAME --role {needed}",
            )
        return name

    def _suggest(self, error: TableNotFound) -> None:
        if isinstance(error.table, TableIdentifier) and (similar := self._services.tables.similar(error.table)):
            error.hint = f"Did you mean {similar}?"
