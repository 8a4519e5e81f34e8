"""The connection to a coordinator: the methods of the AdminService, with their deadlines, the token, and our errors."""

import getpass
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from amoro_cli.connection import Endpoint, remote_error
from amoro_core.errors import AmoroError, CoordinatorUnavailable, NotAllowed, WaitTimeout, WorkFailed
from amoro_core.model.principals import parse_token
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.protocol.channels import USER_KEY, WAY_KEY, connection_error, is_encrypted, open_channel, short_details
from amoro_core.protocol.operations import LASTING, OPERATIONS

if TYPE_CHECKING:
    from google.protobuf.message import Message

    Methods = AdminServiceStub  # the types of requests and answers
else:
    Methods = object


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


class AdminClient(Methods):
    """The methods of the AdminService by their names: `client.GetTable(pb.GetTableRequest(table=name))`.

    Each may raise an AmoroError, and has its operation's deadline unless a `timeout` in seconds is given.
    """

    def __init__(self, endpoint: Endpoint, after: Callable[[Endpoint], Endpoint | None] = lambda lost: None) -> None:
        """`after` returns the endpoint that replaces one whose coordinator has ended; None: there is none."""
        self._after = after
        self._more: tuple[tuple[str, str], ...] = ()  # metadata beside that of every call
        self._open(endpoint)

    def __getattr__(self, name: str) -> Any:
        if name not in OPERATIONS:
            raise AttributeError(name)
        return partial(self.ask, name)

    def set_channel(self, channel: str) -> None:
        """Have the audit show from now on that calls come by that channel."""
        self._more = ((WAY_KEY, channel),)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def answer(self, request: "Message") -> Any:
        """The answer of the method that takes such requests, as GetTable takes GetTableRequest."""
        return self.ask(type(request).__name__.removesuffix("Request"), request)

    def ask(self, method: str, request: "Message", timeout: float | None = None) -> Any:
        """The answer of the method of that name. Raises WaitTimeout when one whose work may last is late."""
        seconds = OPERATIONS[method].deadline.total_seconds() if timeout is None else timeout
        while True:
            try:
                return getattr(self._stub, method)(request, timeout=seconds, metadata=(*self._metadata, *self._more))
            except grpc.RpcError as error:
                if error.code() in _GONE and self._reopen():
                    continue
                reason = connection_error(self.address, error.details() or "", encrypted=self._encrypted)
                late = WaitTimeout if OPERATIONS[method].deadline == LASTING else CoordinatorUnavailable
                raise reason or _translate(error, self.address, seconds, late) from error

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

    def _reopen(self) -> bool:
        """Connect to the endpoint that replaces one whose coordinator has ended; False without one."""
        endpoint = self._after(self._endpoint)
        if endpoint is None:
            return False
        self._channel.close()
        self._open(endpoint)
        return True


def _translate(error: Any, address: str, seconds: float, late: type[AmoroError]) -> AmoroError:
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
                f"The coordinator at {address} does not answer: {short_details(message)}",
                hint="Start one with: amoro up. Or name another with --address or --home.",
            )
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return late(f"The coordinator at {address} did not answer within {seconds:g} s")
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
