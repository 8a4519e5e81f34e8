"""An error that the coordinator reported, with the code and exit status it has there."""

from amoro_core.errors import AmoroError


class RemoteError(AmoroError):
    """What the coordinator, or a process that it ran, reported; `code` and `exit_status` are those it sent."""


def remote_error(code: str, exit_status: int, message: str, hint: str = "") -> RemoteError:
    """The error as it was reported; an exit status that means success becomes 1."""
    attributes = {"code": code or AmoroError.code, "exit_status": exit_status or AmoroError.exit_status}
    kind: type[RemoteError] = type("RemoteError", (RemoteError,), attributes)
    return kind(message, hint=hint)
