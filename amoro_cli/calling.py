"""Calls to a coordinator: each has a deadline, raises our errors, and fails over when the coordinator has ended."""

import getpass
import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from amoro_cli.launcher import Endpoint
from amoro_cli.remote import remote_error
from amoro_core.errors import AmoroError, CoordinatorUnavailable, NotAllowed, WorkFailed
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.protocol.channels import USER_KEY, WAY_KEY, explained, is_encrypted, open_channel, shortened
from amoro_core.protocol.tokens import parse_token

if TYPE_CHECKING:
    from google.protobuf.message import Message

Answer = TypeVar("Answer")

#: Status of a call whose coordinator ended before or during it.
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # a long list from our own coordinator is no danger
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 2000),  # a wait resumes soon after a coordinator's restart
]
_WHERE_TOKENS_ARE = (
    "On the coordinator's machine the token is read from STATE_DIRECTORY/admin.token (see --home); "
    "elsewhere give it with --token-file or AMORO_TOKEN."
)


def _user() -> str:
    """The name of the user who runs this, or the number where the machine knows no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


class Calls:
    """A connection to one coordinator; every call may raise an AmoroError."""

    def __init__(self, endpoint: Endpoint, after: Callable[[Endpoint], Endpoint | None] = lambda gone: None) -> None:
        """`after` returns the endpoint that replaces one whose coordinator has ended; None: there is none."""
        self._after = after
        self._more: tuple[tuple[str, str], ...] = ()  # metadata beside that of every call
        self._open(endpoint)

    def say_way(self, way: str) -> None:
        """Have the audit show from now on that calls come by that way."""
        self._more = ((WAY_KEY, way),)

    def _open(self, endpoint: Endpoint) -> None:
        try:
            token = parse_token(endpoint.token.reveal()).reveal()
        except ValueError as error:
            raise NotAllowed(f"The admin token can't be used: {error}", hint=_WHERE_TOKENS_ARE) from error
        self._endpoint = endpoint
        self.address = endpoint.address
        self._metadata = (("authorization", f"Bearer {token}"), (USER_KEY, _user().encode(errors="replace")))
        self._encrypted = is_encrypted(endpoint.address, endpoint.trust)
        self._channel = open_channel(endpoint.address, endpoint.trust, _OPTIONS)
        self._stub = AdminServiceStub(self._channel)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def ask(self, method: str, request: "Message", within: timedelta) -> "Message":
        """The answer of the method of that name."""
        found: Message = self._call(getattr(self._stub, method), request, within)
        return found

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Any, Answer]",
        request: Any,
        within: timedelta,
        late: type[AmoroError] = CoordinatorUnavailable,
    ) -> Answer:
        while True:
            try:
                return method(request, timeout=within.total_seconds(), metadata=(*self._metadata, *self._more))
            except grpc.RpcError as error:
                again = self._elsewhere(method) if error.code() in _GONE else None
                if again is None:
                    reason = explained(self.address, error.details() or "", encrypted=self._encrypted)
                    raise reason or _translate(error, self.address, within, late) from error
                method = again

    def _elsewhere(
        self, method: "grpc.UnaryUnaryMultiCallable[Any, Answer]"
    ) -> "grpc.UnaryUnaryMultiCallable[Any, Answer] | None":
        """The same method at the endpoint to continue with once the coordinator has ended; None without one."""
        endpoint = self._after(self._endpoint)
        if endpoint is None:
            return None
        name = next(name for name, known in vars(self._stub).items() if known is method)
        self._channel.close()
        self._open(endpoint)
        found: grpc.UnaryUnaryMultiCallable[Any, Answer] = getattr(self._stub, name)
        return found


def _translate(error: Any, address: str, within: timedelta, late: type[AmoroError]) -> AmoroError:
    status: grpc.StatusCode = error.code()
    message: str = error.details() or status.name
    sent = dict(error.trailing_metadata() or ())
    code, exit_status = _text(sent.get("amoro-code")), _text(sent.get("amoro-exit"))
    hint = _text(sent.get("amoro-hint-bin"))
    if status is grpc.StatusCode.UNAUTHENTICATED:
        return remote_error(code or NotAllowed.code, NotAllowed.exit_status, message, _WHERE_TOKENS_ARE)
    if code:
        return remote_error(code, int(exit_status) if exit_status.isdigit() else 1, message, hint)
    match status:
        case grpc.StatusCode.UNAVAILABLE:
            return CoordinatorUnavailable(
                f"The coordinator at {address} does not answer: {shortened(message)}",
                hint="Start one with: amoro up. Or name another with --address or --home.",
            )
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return late(f"The coordinator at {address} did not answer within {within.total_seconds():g} s")
        case grpc.StatusCode.UNIMPLEMENTED:
            return WorkFailed(
                f"The coordinator at {address} cannot do this: {message}",
                hint="It may be older than this command line: compare the versions.",
            )
        case grpc.StatusCode.PERMISSION_DENIED:
            return NotAllowed(message, hint=_WHERE_TOKENS_ARE)
    return WorkFailed(f"The coordinator at {address} failed: {message}", hint="Its log says more.")


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
