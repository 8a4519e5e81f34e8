"""An error that the coordinator reported, as the class that it has there."""

from collections.abc import Iterator

from amoro_core.errors import AmoroError, TableRefused


def remote_error(code: str, exit_status: int, message: str, hint: str = "") -> AmoroError:
    """The error as it was reported: of the class that has its code.

    Of a code that is not known here, and where the status differs, an AmoroError with what was sent. An exit status
    that means success becomes 1.
    """
    status = exit_status or AmoroError.exit_status
    known = _BY_CODE.get(code)
    if known is not None and known.exit_status == status:
        if issubclass(known, TableRefused):
            return known(message, reason="", hint=hint)
        return known(message, hint=hint)
    kind = type("RemoteError", (AmoroError,), {"code": code or AmoroError.code, "exit_status": status})
    error: AmoroError = kind(message, hint=hint)
    return error


def _tree(kind: type[AmoroError]) -> Iterator[type[AmoroError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


_BY_CODE = {kind.code: kind for kind in _tree(AmoroError)}
