"""Logins by password or link, and the session cookie."""

import asyncio
import hashlib
import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from amoro_core.errors import AmoroError, UnknownToken
from amoro_core.model.history_events import Audited
from amoro_core.model.principals import LONGEST_SESSION, Channel, Principal, Role, Throttle
from amoro_core.services.accounts import SessionService, UserService
from amoro_core.services.history import AuditService

T = TypeVar("T")

#: Password checks at once, each of 64 MiB, and how many more may wait for their turn.
AT_ONCE, WAITING = 2, 8
_MINUTE = timedelta(minutes=1)


def address_of(request: Request) -> str:
    """The client's address, as reported by a trusted proxy if there is one; "" if unknown."""
    return request.client.host if request.client else ""


class TooManyTries(Exception):
    """Too many attempts; the credentials were not checked."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"Too many tries to log in: wait for {retry_after_s} s, then try again.")
        self.retry_after_s = retry_after_s


class LoginService:
    """Logs people in and out. Blocking work runs in the pool."""

    def __init__(
        self, users: UserService, sessions: SessionService, auditing: AuditService, pool: Executor, state: str
    ) -> None:
        """`state` tells this state directory from others: cookies ignore ports, so two on a host need two names."""
        self._users = users
        self._sessions = sessions
        self._auditing = auditing
        self._pool = pool
        self._state = hashlib.sha256(state.encode()).hexdigest()[:8]
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._pending = 0
        self._by_user, self._by_address = Throttle(5, _MINUTE), Throttle(20, _MINUTE)

    async def check(self, name: str, password: str, address: str) -> Principal | None:
        """The user if the password is right, else None. Raises TooManyTries."""
        wait = max(self._by_address.take(address), self._by_user.take(name))
        if self._pending >= AT_ONCE + WAITING:
            wait = max(wait, 1.0)
        if wait:
            raise TooManyTries(math.ceil(wait))
        self._pending += 1
        try:
            async with self._turns:
                return await self._run(lambda: self._users.check(name, password))
        finally:
            self._pending -= 1

    async def log_in(self, request: Request, name: str, password: str) -> str | None:
        """The id of a new session, or None if user or password is wrong; both are in the audit. Raises TooManyTries."""
        address = address_of(request)
        result = await self.check(name, password, address)
        if result is None:
            await self._note_wrong(name, address)
            return None
        return await self._begin(request, replace(result, way=Channel.PAGE, address=address))

    async def follow_link(self, request: Request, code: str) -> str | None:
        """The id of a new session of the link's account; the link is used up. None for an invalid link.

        Raises TooManyTries.
        """
        address = address_of(request)
        wait = self._by_address.take(address)
        if wait:
            raise TooManyTries(math.ceil(wait))
        result = await self._run(lambda: self._sessions.redeem_link(code))
        return (
            None if result is None else await self._begin(request, replace(result, way=Channel.PAGE, address=address))
        )

    async def admit(self, request: Request, person: Principal) -> str:
        """The id of a new session of a user of the OpenID provider; it is recorded in the audit."""
        known = replace(person, way=Channel.PAGE, address=address_of(request))
        return await self._begin(request, known, self._sessions.begin_of_person)

    async def refuse(self, request: Request, name: str, error: AmoroError) -> None:
        """Note in the audit that a login by the OpenID provider failed; `name` is "" if it is not proven."""
        caller = Principal(name, Role.VIEWER, way=Channel.PAGE, address=address_of(request), is_user=True)
        await self._run(lambda: self._auditing.note(Audited(caller, "LogIn", name), error))

    def limit(self, request: Request) -> None:
        """Count a try of the request's address. Raises TooManyTries."""
        if wait := self._by_address.take(address_of(request)):
            raise TooManyTries(math.ceil(wait))

    def cookie(self, request: Request, kind: str) -> tuple[str, bool]:
        """The name of a cookie of this coordinator, and whether it is sent over TLS only."""
        is_secure = request.url.scheme == "https"
        return f"{'__Host-' if is_secure else ''}{kind}-{self._state}", is_secure

    async def log_out(self, request: Request) -> None:
        """End the request's session, if it has one; the audit has it."""
        if session_id := self._session_id(request):
            address = address_of(request)
            await self._run(lambda: self._end(session_id, address))

    def _end(self, session_id: str, address: str) -> None:
        if who := self._sessions.find(session_id):
            call = Audited(replace(who, way=Channel.PAGE, address=address), "LogOut", who.name)
            self._auditing.note(call, None)
        self._sessions.end(session_id)

    async def visitor(self, request: Request) -> Principal | None:
        """The account of the session cookie; None without a valid session."""
        session_id = self._session_id(request)
        return await self._run(lambda: self._sessions.find(session_id)) if session_id else None

    def set_cookie(self, request: Request, response: Response, session_id: str) -> Response:
        """The response with the cookie of the session."""
        name, is_secure = self._name(request)
        response.set_cookie(
            name,
            session_id,
            max_age=int(LONGEST_SESSION.total_seconds()),
            path="/",
            secure=is_secure,
            httponly=True,
            samesite="lax",
        )
        return response

    def clear_cookie(self, request: Request, response: Response) -> Response:
        """The response that takes the cookie away."""
        name, is_secure = self._name(request)
        response.delete_cookie(name, path="/", secure=is_secure, httponly=True, samesite="lax")
        return response

    async def _note_wrong(self, name: str, address: str) -> None:
        # An unknown name may be a password in the wrong field: it is not recorded.
        known = await self._run(lambda: self._users.find(name)) or Principal("", Role.VIEWER, is_user=True)
        wrong = UnknownToken("the user or the password is wrong")
        call = Audited(replace(known, way=Channel.PAGE, address=address), "LogIn", known.name)
        await self._run(lambda: self._auditing.note(call, wrong))

    async def _begin(
        self, request: Request, principal: Principal, begin_session: Callable[[Principal], str] | None = None
    ) -> str:
        before = self._session_id(request)

        def begin() -> str:
            end = self._auditing.begin(Audited(principal, "LogIn", principal.name))
            try:
                result = (begin_session or self._sessions.begin)(principal)
            except BaseException as error:
                end(error)
                raise
            end(None)
            if before:
                self._sessions.end(before)
            return result

        return await self._run(begin)

    def _name(self, request: Request) -> tuple[str, bool]:
        """The session cookie's name, and whether it is sent over TLS only."""
        return self.cookie(request, "amoro")

    def _session_id(self, request: Request) -> str:
        return request.cookies.get(self._name(request)[0], "")

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
