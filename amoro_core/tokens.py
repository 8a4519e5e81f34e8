"""Tokens of a state directory: files for local clients, hashes for the database."""

import os
import secrets
from pathlib import Path

from amoro_core.errors import InvalidSettings, NotAllowed
from amoro_core.model.secrets import Secret


def ensure_token(path: Path) -> Secret:
    """The token in the file, made at first start, readable by its owner alone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(path)
    token = f"amo_{secrets.token_urlsafe(32)}"
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return Secret(token)


def read_token(path: Path) -> Secret:
    """The token in the file. Raises NotAllowed."""
    try:
        token = path.read_text().strip()
    except FileNotFoundError as error:
        raise NotAllowed(
            f"token file {path} does not exist", hint="It is made by `amoro up`; name it with --token-file."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise NotAllowed(f"token file {path} can't be read: {error}") from error
    if not token:
        raise InvalidSettings(f"token file {path} is empty", hint="Remove it: a new one is made at the next start.")
    return Secret(token)
