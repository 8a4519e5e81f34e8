"""Users: their passwords, roles and patterns."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from amoro_core.errors import InvalidArgument
from amoro_core.events import get_logger
from amoro_core.model.accounts import LONGEST_PASSWORD, UserAccount, require_password
from amoro_core.model.paging import Page, cut
from amoro_core.model.principals import Principal, checked_pattern
from amoro_core.model.provider import PREFIX
from amoro_core.model.texts import NAMES, is_name
from amoro_core.model.tokens import Role
from amoro_core.store import http_sessions, user_accounts
from amoro_core.store.database import Connection, Store

log = get_logger("amoro.users")


class Hashing(Protocol):
    """Slow hashes of passwords."""

    def hash(self, password: str) -> str:
        """The form to store."""

    def is_right(self, password: str, stored: str | None) -> bool:
        """Whether the password has that hash; None takes as long, and is never right."""


class UserService:
    """Users by name. There is none until an administrator adds one."""

    def __init__(self, store: Store, clock: Callable[[], datetime], hashing: Hashing) -> None:
        self._store = store
        self._clock = clock
        self._hashing = hashing

    def add(self, name: str, role: Role, pattern: str, password: str) -> UserAccount:
        """A new user. Raises InvalidArgument (name, role, pattern, password), AlreadyExists."""
        if not is_name(name) or name.startswith(PREFIX):  # which people of an OpenID provider have
            raise InvalidArgument(f"{name!r} can't be the name of a user", hint=NAMES)
        pattern = checked_pattern(pattern, _human(role))
        hashed = self._hashing.hash(require_password(password))
        made = UserAccount(name, role, pattern, hashed, self._clock())
        self._store.write(lambda db: user_accounts.add(db, made))
        log.info("user.added", name=name, role=role.value)
        return made

    def update(self, name: str, role: Role | None, pattern: str | None) -> UserAccount:
        """Give the user another role or pattern; None keeps it. Open sessions end.

        Raises NotFound, InvalidArgument.
        """

        def change(db: Connection) -> UserAccount:
            user = user_accounts.get(db, name)
            wanted = _human(role or user.role)
            # A pattern goes with the role that had it, unless another is given.
            kept = user.pattern if wanted is Role.OPERATOR else ""
            limits = checked_pattern(kept if pattern is None else pattern, wanted)
            http_sessions.remove_of_user(db, name)
            return user_accounts.save(db, replace(user, role=wanted, pattern=limits))

        changed = self._store.write(change)
        log.info("user.updated", name=name, role=changed.role.value)
        return changed

    def set_password(self, name: str, password: str) -> UserAccount:
        """Give the user another password. Open sessions end. Raises NotFound, InvalidArgument."""
        hashed = self._hashing.hash(require_password(password))

        def change(db: Connection) -> UserAccount:
            http_sessions.remove_of_user(db, name)
            return user_accounts.save(db, replace(user_accounts.get(db, name), password_hash=hashed))

        return self._store.write(change)

    def remove(self, name: str) -> None:
        """Remove the user. Open sessions end. Raises NotFound."""

        def drop(db: Connection) -> None:
            user_accounts.remove(db, name)
            http_sessions.remove_of_user(db, name)

        self._store.write(drop)
        log.info("user.removed", name=name)

    def list_users(self, after: str, limit: int) -> Page[UserAccount]:
        """At most `limit` users after a name, sorted by name."""

        def read(db: Connection) -> Page[UserAccount]:
            found = user_accounts.list_page(db, after, limit + 1)
            return cut(found, limit, user_accounts.count(db), lambda user: user.name)

        return self._store.read(read)

    def find(self, name: str) -> Principal | None:
        """The user of that name; None when there is none."""
        user = self.account(name)
        return None if user is None else Principal(user.name, user.role, user.pattern, is_user=True)

    def account(self, name: str) -> UserAccount | None:
        """The user of that name with its password's hash; None when there is none."""
        return self._store.read(lambda db: user_accounts.find(db, name)) if is_name(name) else None

    def check(self, name: str, password: str) -> Principal | None:
        """The user, if the password is right; None, after as long, if it is not or the user is unknown."""
        user = self.account(name)
        stored = user.password_hash if user is not None and len(password) <= LONGEST_PASSWORD else None
        if not self._hashing.is_right(password[:LONGEST_PASSWORD], stored) or user is None:
            return None
        return Principal(user.name, user.role, user.pattern, is_user=True)


def _human(role: Role) -> Role:
    if role is Role.ENROLMENT:
        raise InvalidArgument("a user registers no optimizer", hint="One of: viewer, operator, admin.")
    return role
