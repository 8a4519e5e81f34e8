"""An error reported by the coordinator, as the class it has there."""

from collections.abc import Iterator

from amoro_core.errors import (
    AmoroError,
    CommitUnknown,
    Conflict,
    InvalidArgument,
    NotAllowed,
    NotFound,
    TableRefused,
    WaitTimeout,
    WorkFailed,
)


def remote_error(code: str, exit_status: int, message: str, hint: str = "") -> AmoroError:
    """The reported error, of the class that has its code.

    For an unknown code, or one whose status differs here, a subclass of the class that has that status, with what was
    sent. An exit status that means success becomes 1.
    """
    status = exit_status or AmoroError.exit_status
    known = _BY_CODE.get(code)
    if known is not None and known.exit_status == status:
        return _made(known, message, hint)
    family = _BY_STATUS.get(status, AmoroError)
    return _made(type(family.__name__, (family,), {"code": code or family.code, "exit_status": status}), message, hint)


def _made(kind: type[AmoroError], message: str, hint: str) -> AmoroError:
    if issubclass(kind, TableRefused):
        return kind(message, reason="", hint=hint)
    return kind(message, hint=hint)


def _tree(kind: type[AmoroError]) -> Iterator[type[AmoroError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


#: The most general class of each exit status.
_BY_STATUS = {
    kind.exit_status: kind
    for kind in (WorkFailed, InvalidArgument, NotFound, NotAllowed, Conflict, TableRefused, CommitUnknown, WaitTimeout)
}
_BY_CODE = {kind.code: kind for kind in _tree(AmoroError)}
