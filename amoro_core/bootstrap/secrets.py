"""Tokens of a state directory in files and as hashes, and hashes of passwords."""

import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from amoro_core.errors import InvalidSettings, NotAllowed
from amoro_core.model import principals
from amoro_core.model.listeners import Webhook, signing_key
from amoro_core.model.text_sanitizing import Secret

if TYPE_CHECKING:
    from argon2 import PasswordHasher


def ensure_token(path: Path) -> Secret:
    """The token in the file, created at first start, readable by its owner only. Raises NotAllowed, InvalidSettings."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(path)
    token = f"amo_{secrets.token_urlsafe(32)}"
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
    except OSError as error:
        path.unlink(missing_ok=True)  # an empty file would be refused at every later start
        error.filename = str(path)
        raise
    return Secret(token)


def read_token(path: Path) -> Secret:
    """The token in the file. Raises NotAllowed, InvalidSettings."""
    try:
        return principals.read_token(path)
    except OSError as error:
        raise NotAllowed(
            f"token file {path} can't be read: {principals.token_problem(error)}",
            hint="`amoro up` makes it, for its own user to read; name another with --token-file.",
        ) from error
    except ValueError as error:
        raise InvalidSettings(
            f"token file {path} can't be used: {principals.token_problem(error)}",
            hint="Remove it: a new one is made at the next start of a coordinator.",
        ) from error


def secret_of(reference: str, key: str = "oidc-client-secret") -> Secret:
    """The secret that `env:NAME` or `file:PATH` names, which `key` has; an empty one of "". Raises InvalidSettings."""
    kind, _, place = reference.partition(":")
    if kind == "env":
        if not os.environ.get(place):
            raise InvalidSettings(
                f"{key} refers to the environment variable {place}, which is not set",
                hint="Set it where the coordinator is started.",
            )
        return Secret(os.environ[place])
    if not reference:
        return Secret("")
    path = Path("/" + place.lstrip("/"))
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidSettings(f"{key} refers to {path}, which can't be read: {why}") from error
    if not text:
        raise InvalidSettings(f"{key} refers to {path}, which is empty")
    return Secret(text)


def signing_key_of(config: Webhook) -> bytes:
    """The key with which events for a listener are signed. Raises InvalidSettings."""
    setting = f"secret of listener {config.name}"
    try:
        return signing_key(secret_of(config.secret, setting).reveal())
    except ValueError as error:
        hint = "Make one with: echo whsec_$(openssl rand -base64 32)"
        raise InvalidSettings(f"{setting}: {config.secret} holds no key: {error}", hint=hint) from error


class Passwords:
    """Hashes and checks passwords with the defaults of argon2-cffi: 64 MiB and about a quarter of a second each."""

    def hash(self, password: str) -> str:
        """The form to store, with its salt and parameters."""
        return self._hasher.hash(password)

    def is_right(self, password: str, stored: str | None) -> bool:
        """Whether the password has that hash. None, for an unknown user, takes as long and never matches."""
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            return self._hasher.verify(stored or self._dummy_hash, password) and stored is not None
        except (VerificationError, InvalidHashError):
            return False

    @cached_property
    def _hasher(self) -> "PasswordHasher":
        # Imported at the first login.
        from argon2 import PasswordHasher

        return PasswordHasher()

    @cached_property
    def _dummy_hash(self) -> str:
        return self._hasher.hash("dummy password")
