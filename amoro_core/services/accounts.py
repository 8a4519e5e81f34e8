"""Tokens, users and sessions."""

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from amoro_core.errors import InvalidArgument, NotAllowed, UnknownToken
from amoro_core.logger import get_logger
from amoro_core.model.paging import Page, cut
from amoro_core.model.principals import (
    LINK_LASTS,
    LONGEST_PASSWORD,
    PREFIX,
    AccessToken,
    Holder,
    HttpSession,
    Principal,
    Role,
    UserAccount,
    checked_pattern,
    hash_token,
    require_password,
    token_fingerprint,
)
from amoro_core.model.text_sanitizing import NAMES, Secret, is_name
from amoro_core.store import accounts
from amoro_core.store.database import Connection, Store

log = get_logger("amoro.tokens")

LONGEST = timedelta(days=3650)  # of a token that ends by itself


class TokenService:
    """Tokens by name. Those of the state directory are named after their roles and can't be revoked here."""

    def __init__(self, store: Store, clock: Callable[[], datetime], own: Mapping[Role, Secret]) -> None:
        self._store = store
        self._clock = clock
        self._own = {role: hash_token(token.reveal()) for role, token in own.items()}

    @property
    def state(self) -> str:
        """Identifies this state directory and changes with its tokens; not a secret."""
        return hash_token("".join(self._own.values()))

    def holds(self, role: Role, token: str) -> bool:
        """Whether the token includes that role, and has not expired."""
        try:
            return self.admit(token).role.allows(role)
        except UnknownToken:
            return False

    def admit(self, token: str) -> Principal:
        """Who the token stands for. Raises UnknownToken, also for one that has expired."""
        token_hash = hash_token(token)
        # Looking up the hash of a long random token reveals nothing about others; checking our own first saves a read.
        for role, own in self._own.items():
            if hmac.compare_digest(token_hash, own):
                return Principal(role.value, role)
        found = self._store.read(lambda db: accounts.find_token_by_hash(db, token_hash))
        if found is None:
            raise UnknownToken("the admin token is wrong", hint="It is in admin.token of the state directory.")
        if found.expires_at is not None and found.expires_at <= self._clock():
            raise UnknownToken(
                f"the token {found.name} expired at {found.expires_at:%Y-%m-%d %H:%M}Z",
                hint="Ask an administrator for another: amoro token create NAME --expires 90d",
            )
        return Principal(found.name, found.role, found.pattern)

    def find(self, name: str) -> AccessToken | None:
        """The token of that name, of those of the state directory, too; None when there is none or it has expired."""
        if name in self._own:
            role = Role(name)
            return AccessToken(name, role, self._own[role], self._clock())
        found = self._store.read(lambda db: accounts.find_token(db, name))
        if found is None or (found.expires_at is not None and found.expires_at <= self._clock()):
            return None
        return found

    def create(
        self, name: str, role: Role, pattern: str = "", lasts: timedelta | None = None
    ) -> tuple[AccessToken, str]:
        """A new token, which is returned only here; it acts on tables of the pattern, and ends after `lasts`.

        Raises InvalidArgument (name, pattern), AlreadyExists.
        """
        if not is_name(name):
            raise InvalidArgument(f"{name!r} can't be the name of a token", hint=NAMES)
        if name in self._own:
            raise InvalidArgument(f"{name!r} is the state directory's own token", hint="Choose another name.")
        token = f"amo_{secrets.token_urlsafe(32)}"
        if lasts is not None and not timedelta(0) < lasts <= LONGEST:
            raise InvalidArgument(
                f"a token of {lasts} is not possible", hint=f"It lasts at most {LONGEST.days} days; revoke it earlier."
            )
        now = self._clock()
        ends = None if lasts is None else now + lasts
        made = AccessToken(name, role, hash_token(token), now, checked_pattern(pattern, role), ends)
        self._store.write(lambda db: accounts.add_token(db, made))
        log.info("token.created", name=name, role=role.value)
        return made, token

    def list_tokens(self, after: str = "", limit: int = 1000) -> Page[AccessToken]:
        """At most `limit` created tokens after a name, sorted by name."""

        def read(db: Connection) -> Page[AccessToken]:
            found = accounts.list_token_page(db, after, limit + 1)
            return cut(found, limit, accounts.count_tokens(db), lambda token: token.name)

        return self._store.read(read)

    def revoke(self, name: str) -> None:
        """Revoke the token from the next call on. Optimizers that registered with it stay.

        Raises TokenNotFound, InvalidArgument for a token of the state directory.
        """
        if name in self._own:
            raise InvalidArgument(
                f"{name!r} is the state directory's own token and can't be revoked here",
                hint=f"Stop the coordinator, delete {name}.token there, and start it: a new one is made.",
            )
        self._store.write(lambda db: accounts.remove_token(db, name))
        log.info("token.revoked", name=name)


users_log = get_logger("amoro.users")


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
        self._store.write(lambda db: accounts.add_user(db, made))
        users_log.info("user.added", name=name, role=role.value)
        return made

    def update(self, name: str, role: Role | None, pattern: str | None) -> UserAccount:
        """Give the user another role or pattern; None keeps it. Open sessions end.

        Raises NotFound, InvalidArgument.
        """

        def change(db: Connection) -> UserAccount:
            user = accounts.get_user(db, name)
            wanted = _human(role or user.role)
            # A pattern goes with the role that had it, unless another is given.
            kept = user.pattern if wanted is Role.OPERATOR else ""
            limits = checked_pattern(kept if pattern is None else pattern, wanted)
            accounts.remove_sessions_of_user(db, name)
            return accounts.save_user(db, replace(user, role=wanted, pattern=limits))

        changed = self._store.write(change)
        users_log.info("user.updated", name=name, role=changed.role.value)
        return changed

    def set_password(self, name: str, password: str) -> UserAccount:
        """Give the user another password. Open sessions end. Raises NotFound, InvalidArgument."""
        hashed = self._hashing.hash(require_password(password))

        def change(db: Connection) -> UserAccount:
            accounts.remove_sessions_of_user(db, name)
            return accounts.save_user(db, replace(accounts.get_user(db, name), password_hash=hashed))

        return self._store.write(change)

    def remove(self, name: str) -> None:
        """Remove the user. Open sessions end. Raises NotFound."""

        def drop(db: Connection) -> None:
            accounts.remove_user(db, name)
            accounts.remove_sessions_of_user(db, name)

        self._store.write(drop)
        users_log.info("user.removed", name=name)

    def list_users(self, after: str, limit: int) -> Page[UserAccount]:
        """At most `limit` users after a name, sorted by name."""

        def read(db: Connection) -> Page[UserAccount]:
            found = accounts.list_user_page(db, after, limit + 1)
            return cut(found, limit, accounts.count_users(db), lambda user: user.name)

        return self._store.read(read)

    def find(self, name: str) -> Principal | None:
        """The user of that name; None when there is none."""
        user = self.account(name)
        return None if user is None else Principal(user.name, user.role, user.pattern, is_user=True)

    def account(self, name: str) -> UserAccount | None:
        """The user of that name with its password's hash; None when there is none."""
        return self._store.read(lambda db: accounts.find_user(db, name)) if is_name(name) else None

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


sessions_log = get_logger("amoro.sessions")

#: Uses are noted no finer: a page of many requests is one write.
_NOTED = timedelta(minutes=1)
_MOST_LINKS = 100


class SessionService:
    """Sessions by their random ids. One ends by itself, at logout, and when its account is not what it was."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime],
        tokens: Callable[[str], AccessToken | None],
        terms: str = "",
    ) -> None:
        """`tokens` gives a token by its name, those of the state directory, too, unless it has expired.

        `terms` is the fingerprint of what was agreed on with an OpenID provider; "" without one.
        """
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._terms = terms
        self._lock = threading.Lock()
        self._links: dict[str, tuple[str, datetime]] = {}  # hash of the code: name of the token, end

    def begin(self, principal: Principal) -> str:
        """A new session of the account; its id is returned only here. Raises NotAllowed if the account is gone."""
        session_id, now = secrets.token_urlsafe(32), self._clock()
        holder = Holder.USER if principal.is_user else Holder.BEARER

        known = self._known(holder, principal.name)
        if known is None:
            raise NotAllowed(f"{principal.title} is not known any more")
        # If the account changes meanwhile, the session has ended before it began.
        made = HttpSession(_hash(session_id), holder, principal.name, known[1], now, now)
        self._store.write(lambda db: accounts.add_session(db, made))
        sessions_log.info("session.begun", account=principal.name, holder=holder.value)
        return session_id

    def begin_of_person(self, person: Principal) -> str:
        """A new session of one of the OpenID provider's people, who keeps that role and pattern while it lasts.

        Its id is returned only here. Raises NotAllowed without a provider.
        """
        if not self._terms:
            raise NotAllowed("this coordinator has no OpenID provider", hint="Set oidc-issuer in amoro.yaml.")
        session_id, now = secrets.token_urlsafe(32), self._clock()
        made = HttpSession(
            _hash(session_id), Holder.PERSON, person.name, self._terms, now, now, person.role, person.pattern
        )
        self._store.write(lambda db: accounts.add_session(db, made))
        sessions_log.info("session.begun", account=person.name, holder=made.holder.value)
        return session_id

    def find(self, session_id: str) -> Principal | None:
        """Who the session stands for; None when it has ended."""
        hashed, now = _hash(session_id), self._clock()

        session = self._store.read(lambda db: accounts.find_session(db, hashed))
        if session is None or session.has_ended(now):
            return None
        if session.role is not None:
            person = Principal(session.name, session.role, session.pattern, is_user=True)
            known: tuple[Principal, str] | None = person, self._terms
        else:
            known = self._known(session.holder, session.name)
        if known is None or known[1] != session.fingerprint:
            return None
        if now - session.seen_at >= _NOTED:
            self._store.write(lambda db: accounts.touch_session(db, hashed, now))
        return known[0]

    def end(self, session_id: str) -> None:
        """End the session; it need not exist."""
        hashed = _hash(session_id)
        self._store.write(lambda db: accounts.remove_session(db, hashed))

    def make_link(self, token_name: str) -> tuple[str, datetime]:
        """A code that begins one session of the token, and when it ends; it does not outlive this process."""
        code, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            self._links = {key: item for key, item in self._links.items() if item[1] > now}
            while len(self._links) >= _MOST_LINKS:
                self._links.pop(next(iter(self._links)))
            self._links[_hash(code)] = token_name, now + LINK_LASTS
        return code, now + LINK_LASTS

    def redeem_link(self, code: str) -> Principal | None:
        """The account of the link, which is used up; None for one that was used, has ended or never was."""
        with self._lock:
            name, ends_at = self._links.pop(_hash(code), ("", self._clock()))
        if not name or ends_at <= self._clock():
            return None
        token = self._tokens(name)
        return None if token is None else Principal(token.name, token.role, token.pattern)

    def trim(self) -> int:
        """Forget sessions that have ended; how many."""
        return self._store.write(lambda db: accounts.trim_sessions(db, self._clock()))

    def _known(self, holder: Holder, name: str) -> tuple[Principal, str] | None:
        """The account as it is now, and what its sessions depend on."""
        if holder is Holder.USER:
            user = self._store.read(lambda db: accounts.find_user(db, name))
            if user is None:
                return None
            return Principal(user.name, user.role, user.pattern, is_user=True), user.fingerprint
        token = self._tokens(name)
        if token is None:
            return None
        fingerprint = token_fingerprint(token.token_hash, token.role, token.pattern)
        return Principal(token.name, token.role, token.pattern), fingerprint


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
