"""Common mistakes that libraries report by their own exceptions, translated to our errors with a code."""

from collections.abc import Sequence
from errno import errorcode

from amoro_core.errors import AmoroError, InvalidArgument, StorageFull, WorkFailed
from amoro_core.model.secrets import without_secrets
from amoro_core.model.texts import is_text

_FULL = {"ENOSPC", "EDQUOT"}


def refuse_undecodable(arguments: Sequence[str]) -> None:
    """Raise InvalidArgument for an argument that is not UTF-8: no name here is."""
    for argument in arguments:
        if not is_text(argument):
            raise InvalidArgument(f"{argument!r} is not UTF-8", hint="Write names and paths in UTF-8.")


def refuse_empty(arguments: Sequence[str]) -> None:
    """Raise InvalidArgument for an empty argument, as an unset variable in quotes leaves it."""
    for before, argument in zip(("", *arguments), arguments, strict=False):
        name, equals, value = argument.partition("=")
        if not argument.strip():
            what = f"the value of {before}" if before.startswith("-") and "=" not in before else "an argument"
            raise InvalidArgument(f"{what} is empty", hint="Give it a value, or leave it out.")
        if name.startswith("--") and equals and not value.strip():
            raise InvalidArgument(f"the value of {name} is empty", hint="Give it a value, or leave it out.")


def as_ours(error: Exception) -> AmoroError:
    """The exception as an AmoroError: an error of the file system is ordinary, anything else is a bug of ours."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        kind = StorageFull if errorcode.get(error.errno or 0) in _FULL else WorkFailed
        return kind(f"{where}{error.strerror}", hint="Check the file's permissions and its disk." if where else "")
    return AmoroError(
        without_secrets(f"This should not have happened: {type(error).__name__}: {error}"),
        hint="Run it again with --debug for the traceback, and report it.",
    )
