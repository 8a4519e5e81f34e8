"""Slow hashes of passwords: argon2id, loaded where the first password is."""

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argon2 import PasswordHasher


class Passwords:
    """Hashes and checks passwords with the defaults of argon2-cffi: 64 MiB and about a quarter of a second each."""

    def hash(self, password: str) -> str:
        """The form to store, with its salt and parameters."""
        return self._hasher.hash(password)

    def is_right(self, password: str, stored: str | None) -> bool:
        """Whether the password has that hash. None, for an unknown user, takes as long, and is never right."""
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            return self._hasher.verify(stored or self._of_nobody, password) and stored is not None
        except (VerificationError, InvalidHashError):
            return False

    @cached_property
    def _hasher(self) -> "PasswordHasher":
        # Loaded only where somebody logs in: most coordinators of one command never do.
        from argon2 import PasswordHasher

        return PasswordHasher()

    @cached_property
    def _of_nobody(self) -> str:
        return self._hasher.hash("nobody's password")
