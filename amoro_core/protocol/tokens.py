"""Tokens as calls carry them, in a header."""

from pathlib import Path

from amoro_core.model.secrets import Secret

_LONGEST = 1024
_AT_MOST = 64 * 1024  # bytes of a file that are read: it may be a device without end


def parse_token(text: str) -> Secret:
    """The token, without space around it. Raises ValueError that says why it is none, and does not show it."""
    token = text.strip()
    if not token:
        raise ValueError("it is empty")
    if not token.isascii() or not token.isprintable() or " " in token or len(token) > _LONGEST:
        raise ValueError("it holds something other than one token")
    return Secret(token)


def read_token(path: Path) -> Secret:
    """The token in the file, which may be a pipe. Raises ValueError that says why there is none, OSError."""
    with path.open("rb") as file:
        return parse_token(file.read(_AT_MOST).decode("latin-1"))


def told(error: OSError | ValueError) -> str:
    """What is wrong with a token, or its file, as the end of a sentence."""
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
