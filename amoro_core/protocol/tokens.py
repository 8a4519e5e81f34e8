"""Tokens that calls carry in a header."""

from pathlib import Path

from amoro_core.model.text_sanitizing import Secret

_LONGEST = 1024
_AT_MOST = 64 * 1024  # bytes read of a file, which may be an endless device


def parse_token(text: str) -> Secret:
    """The token, stripped of spaces. Raises ValueError with the reason, without showing the token."""
    token = text.strip()
    if not token:
        raise ValueError("it is empty")
    if not token.isascii() or not token.isprintable() or " " in token or len(token) > _LONGEST:
        raise ValueError("it holds something other than one token")
    return Secret(token)


def read_token(path: Path) -> Secret:
    """The token in the file, which may be a pipe. Raises ValueError with the reason, OSError."""
    with path.open("rb") as file:
        return parse_token(file.read(_AT_MOST).decode("latin-1"))


def told(error: OSError | ValueError) -> str:
    """What is wrong with a token or its file, as the end of a sentence."""
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
