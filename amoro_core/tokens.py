"""Tokens of a state directory: files for local clients, hashes for the database."""

import os
import secrets
from pathlib import Path

from amoro_core.errors import InvalidSettings, NotAllowed
from amoro_core.model.secrets import Secret
from amoro_core.protocol import tokens


def ensure_token(path: Path) -> Secret:
    """The token in the file, created at first start, readable by its owner only. Raises NotAllowed, InvalidSettings."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(path)
    token = f"amo_{secrets.token_urlsafe(32)}"
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return Secret(token)


def read_token(path: Path) -> Secret:
    """The token in the file. Raises NotAllowed, InvalidSettings."""
    try:
        return tokens.read_token(path)
    except OSError as error:
        raise NotAllowed(
            f"token file {path} can't be read: {tokens.told(error)}",
            hint="`amoro up` makes it, for its own user to read; name another with --token-file.",
        ) from error
    except ValueError as error:
        raise InvalidSettings(
            f"token file {path} can't be used: {tokens.told(error)}",
            hint="Remove it: a new one is made at the next start of a coordinator.",
        ) from error
