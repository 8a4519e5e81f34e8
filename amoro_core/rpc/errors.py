"""Translation of errors to gRPC statuses."""

from typing import Any, NoReturn

import grpc

from amoro_core import errors
from amoro_core.errors import AmoroError
from amoro_core.events import get_logger
from amoro_core.model.secrets import without_secrets
from amoro_core.model.texts import LONGEST_MESSAGE, cut

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
    errors.Held: grpc.StatusCode.FAILED_PRECONDITION,
    errors.GuardSpoke: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CannotUndo: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CommitUnknown: grpc.StatusCode.UNKNOWN,
    errors.WaitTimeout: grpc.StatusCode.DEADLINE_EXCEEDED,
}


def status_of(error: AmoroError) -> grpc.StatusCode:
    """The gRPC status for the error."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: BaseException) -> NoReturn:
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
