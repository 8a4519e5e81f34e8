"""Metadata, errors and timing of gRPC calls."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

import grpc

from amoro_core import errors
from amoro_core.errors import AmoroError, UnknownToken
from amoro_core.logger import get_logger
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.principals import Channel
from amoro_core.model.text_sanitizing import LONGEST_MESSAGE, cut, printable, without_secrets
from amoro_core.protocol.channels import MCP_WAY, USER_KEY, WAY_KEY

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]

_LONGEST_NAME = 64


async def off_loop(pool: Executor, work: Callable[[], T]) -> T:
    """Run blocking work in the pool."""
    return await asyncio.get_running_loop().run_in_executor(pool, work)


def bearer(context: Context) -> str:
    """The token that the call carries. Raises UnknownToken."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            text = value.decode() if isinstance(value, bytes) else value
            if text.startswith("Bearer "):
                return text.removeprefix("Bearer ")
    raise UnknownToken("the call carries no token", hint="Send the metadata authorization: Bearer TOKEN.")


def user_of(context: Context) -> str:
    """The user's name as the client states it, safe to show; "" when it states none. It is not authenticated."""
    for key, value in context.invocation_metadata() or ():
        if key == USER_KEY and isinstance(value, bytes):
            return printable(value.decode(errors="replace"))[:_LONGEST_NAME]
    return ""


def way_of(context: Context) -> Channel:
    """The channel of the call: MCP if the client states it."""
    way = dict(context.invocation_metadata() or ()).get(WAY_KEY)
    return Channel.MCP if way == MCP_WAY else Channel.GRPC


def address_of(context: Context) -> str:
    """The address of the client without its port, as 10.1.2.3 or ::1; "" when it is not known."""
    family, _, rest = context.peer().partition(":")
    return unquote(rest.rpartition(":")[0]).strip("[]") if family in ("ipv4", "ipv6") else ""


log = get_logger("amoro.rpc")

#: Bytes on the wire. Clients accept 8 kB of trailing metadata in all; with more, they report nothing but that.
_LONGEST_HINT = 1024

#: The status of an error is that of its closest class in this table.
STATUSES: dict[type[AmoroError], grpc.StatusCode] = {
    errors.AmoroError: grpc.StatusCode.INTERNAL,
    errors.WorkFailed: grpc.StatusCode.ABORTED,
    errors.CatalogUnavailable: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CoordinatorUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.StoreFailed: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StorageFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidSettings: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.NotAllowed: grpc.StatusCode.PERMISSION_DENIED,
    errors.UnknownToken: grpc.StatusCode.UNAUTHENTICATED,
    errors.Conflict: grpc.StatusCode.ABORTED,
    errors.TooManyEvents: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.TableRefused: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ConfirmationRequired: grpc.StatusCode.FAILED_PRECONDITION,
    errors.FileStillReferenced: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CannotUndo: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CommitUnknown: grpc.StatusCode.UNKNOWN,
    errors.WaitTimeout: grpc.StatusCode.DEADLINE_EXCEEDED,
}


def status_of(error: AmoroError) -> grpc.StatusCode:
    """The gRPC status for the error."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


async def abort(context: Context, error: BaseException) -> NoReturn:
    """End the call with the error: its message as details, code, exit status and hint as trailing metadata.

    Longer texts are cut, and their length is stated.
    """
    if not isinstance(error, AmoroError):
        log.exception("call.failed", exc_info=error)
        error = AmoroError(
            without_secrets(f"internal error: {type(error).__name__}: {error}"), hint="The coordinator's log has more."
        )
    await context.abort(
        status_of(error),
        cut(error.message, LONGEST_MESSAGE),
        (
            ("amoro-code", error.code),
            ("amoro-exit", str(error.exit_status)),
            ("amoro-hint-bin", cut(error.hint, _LONGEST_HINT).encode()),
        ),
    )


class Timing(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs alone
    """Measures every call of a known method that has one request and one answer."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._timed: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}  # by method: handlers are the same for every call

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        if (method_handler := self._timed.get(handler_call_details.method)) is not None:
            return method_handler
        handler = await continuation(handler_call_details)
        inner = handler.unary_unary if handler else None  # no handler: the method is not known
        if inner is None:
            return handler
        name = handler_call_details.method.rpartition("/")[2]

        async def answer(request: Any, context: Any) -> Any:
            with self._meters.timed(metrics.RPC_TIME, name):
                return await inner(request, context)

        timed = self._timed[handler_call_details.method] = grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )
        return timed
