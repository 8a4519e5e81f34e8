"""Tokens, users and sessions."""

import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from amoro_core.errors import InvalidArgument, NotAllowed, UnknownToken
from amoro_core.logger import get_logger
from amoro_core.model.paging import Page
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


@dataclass
class TokenService:
    """Tokens by name. Those of the state directory are named after their roles and can't be revoked here."""

    store: Store
    clock: Callable[[], datetime]
    own: InitVar[Mapping[Role, Secret]]

    def __post_init__(self, own: Mapping[Role, Secret]) -> None:
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
        access_token = self.store.read(lambda db: accounts.find_token_by_hash(db, token_hash))
        if access_token is None:
            raise UnknownToken("the admin token is wrong", hint="It is in admin.token of the state directory.")
        if access_token.expires_at is not None and access_token.expires_at <= self.clock():
            raise UnknownToken(
                f"the token {access_token.name} expired at {access_token.expires_at:%Y-%m-%d %H:%M}Z",
                hint="Ask an administrator for another: amoro token create NAME --expires 90d",
            )
        return Principal(access_token.name, access_token.role, access_token.pattern)

    def find(self, name: str) -> AccessToken | None:
        """The token of that name, of those of the state directory, too; None when there is none or it has expired."""
        if name in self._own:
            return AccessToken(name, Role(name), self._own[Role(name)], self.clock())
        access_token = self.store.read(lambda db: accounts.find_token(db, name))
        if access_token is None or (access_token.expires_at is not None and access_token.expires_at <= self.clock()):
            return None
        return access_token

    def create(
        self, name: str, role: Role, pattern: str = "", lasts: timedelta | None = None
    ) -> tuple[AccessToken, str]:
        """A new token, which is returned only here. Raises InvalidArgument (name, pattern), AlreadyExists."""
        if not is_name(name):
            raise InvalidArgument(f"{name!r} can't be the name of a token", hint=NAMES)
        if name in self._own:
            raise InvalidArgument(f"{name!r} is the state directory's own token", hint="Choose another name.")
        token = f"amo_{secrets.token_urlsafe(32)}"
        if lasts is not None and not timedelta(0) < lasts <= LONGEST:
            raise InvalidArgument(
                f"a token of {lasts} is not possible", hint=f"It lasts at most {LONGEST.days} days; revoke it earlier."
            )
        now = self.clock()
        ends = None if lasts is None else now + lasts
        access_token = AccessToken(name, role, hash_token(token), now, checked_pattern(pattern, role), ends)
        self.store.write(lambda db: accounts.add_token(db, access_token))
        log.info("token.created", name=name, role=role.value)
        return access_token, token

    def list_tokens(self, after: str = "", limit: int = 1000) -> Page[AccessToken]:
        """At most `limit` created tokens after a name, sorted by name."""
        return self.store.read(lambda db: accounts.token_page(db, after, limit))

    def revoke(self, name: str) -> None:
        """Revoke the token from the next call on. Raises TokenNotFound, InvalidArgument for an own token."""
        if name in self._own:
            raise InvalidArgument(
                f"{name!r} is the state directory's own token and can't be revoked here",
                hint=f"Stop the coordinator, delete {name}.token there, and start it: a new one is made.",
            )
        self.store.write(lambda db: accounts.remove_token(db, name))
        log.info("token.revoked", name=name)


users_log = get_logger("amoro.users")


class Hashing(Protocol):
    """Slow hashes of passwords."""

    def hash(self, password: str) -> str:
        """The form to store."""

    def is_right(self, password: str, stored: str | None) -> bool:
        """Whether the password has that hash; None takes as long, and is never right."""


@dataclass
class UserService:
    """Users by name. There is none until an administrator adds one."""

    store: Store
    clock: Callable[[], datetime]
    hashing: Hashing

    def add(self, name: str, role: Role, pattern: str, password: str) -> UserAccount:
        """A new user. Raises InvalidArgument (name, role, pattern, password), AlreadyExists."""
        if not is_name(name) or name.startswith(PREFIX):  # which people of an OpenID provider have
            raise InvalidArgument(f"{name!r} can't be the name of a user", hint=NAMES)
        pattern = checked_pattern(pattern, _human(role))
        hashed = self.hashing.hash(require_password(password))
        account = UserAccount(name, role, pattern, hashed, self.clock())
        self.store.write(lambda db: accounts.add_user(db, account))
        users_log.info("user.added", name=name, role=role.value)
        return account

    def update(self, name: str, role: Role | None, pattern: str | None) -> UserAccount:
        """Give the user another role or pattern; None keeps it. Open sessions end. Raises NotFound, InvalidArgument."""

        def change(db: Connection) -> UserAccount:
            user = accounts.get_user(db, name)
            wanted = _human(role or user.role)
            # A pattern goes with the role that had it, unless another is given.
            old = user.pattern if wanted is Role.OPERATOR else ""
            limits = checked_pattern(old if pattern is None else pattern, wanted)
            accounts.remove_sessions_of_user(db, name)
            return accounts.save_user(db, replace(user, role=wanted, pattern=limits))

        changed = self.store.write(change)
        users_log.info("user.updated", name=name, role=changed.role.value)
        return changed

    def set_password(self, name: str, password: str) -> UserAccount:
        """Give the user another password. Open sessions end. Raises NotFound, InvalidArgument."""
        hashed = self.hashing.hash(require_password(password))

        def change(db: Connection) -> UserAccount:
            accounts.remove_sessions_of_user(db, name)
            return accounts.save_user(db, replace(accounts.get_user(db, name), password_hash=hashed))

        return self.store.write(change)

    def remove(self, name: str) -> None:
        """Remove the user. Open sessions end. Raises NotFound."""

        def drop(db: Connection) -> None:
            accounts.remove_user(db, name)
            accounts.remove_sessions_of_user(db, name)

        self.store.write(drop)
        users_log.info("user.removed", name=name)

    def list_users(self, after: str, limit: int) -> Page[UserAccount]:
        """At most `limit` users after a name, sorted by name."""
        return self.store.read(lambda db: accounts.user_page(db, after, limit))

    def find(self, name: str) -> Principal | None:
        user = self._account(name)
        return None if user is None else Principal(user.name, user.role, user.pattern, is_user=True)

    def _account(self, name: str) -> UserAccount | None:
        return self.store.read(lambda db: accounts.find_user(db, name)) if is_name(name) else None

    def check(self, name: str, password: str) -> Principal | None:
        """The user, if the password is right; None, after as long, if it is not or the user is unknown."""
        user = self._account(name)
        stored = user.password_hash if user is not None and len(password) <= LONGEST_PASSWORD else None
        if not self.hashing.is_right(password[:LONGEST_PASSWORD], stored) or user is None:
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


@dataclass
class SessionService:
    """Sessions by their random ids. One ends by itself, at logout, and when its account is not what it was."""

    store: Store
    clock: Callable[[], datetime]
    tokens: TokenService
    terms: str = ""  # fingerprint of what was agreed on with an OpenID provider; "" without one
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    #: By hash of the code: name of the token, end.
    _links: dict[str, tuple[str, datetime]] = field(init=False, default_factory=dict)

    def begin(self, principal: Principal) -> str:
        """A new session of the account; its id is returned only here. Raises NotAllowed if the account is gone."""
        holder = Holder.USER if principal.is_user else Holder.BEARER
        account = self._find_account(holder, principal.name)
        if account is None:
            raise NotAllowed(f"{principal.title} is not known any more")
        # If the account changes meanwhile, the session has ended before it began.
        return self._begin(principal.name, holder, account[1])

    def begin_of_person(self, person: Principal) -> str:
        """A new session of a person of the OpenID provider. Raises NotAllowed without a provider."""
        if not self.terms:
            raise NotAllowed("this coordinator has no OpenID provider", hint="Set oidc-issuer in amoro.yaml.")
        return self._begin(person.name, Holder.PERSON, self.terms, person.role, person.pattern)

    def _begin(self, name: str, holder: Holder, fingerprint: str, role: Role | None = None, pattern: str = "") -> str:
        session_id, now = secrets.token_urlsafe(32), self.clock()
        session = HttpSession(hash_token(session_id), holder, name, fingerprint, now, now, role, pattern)
        self.store.write(lambda db: accounts.add_session(db, session))
        sessions_log.info("session.begun", account=name, holder=holder.value)
        return session_id

    def find(self, session_id: str) -> Principal | None:
        """Who the session stands for; None when it has ended."""
        hashed, now = hash_token(session_id), self.clock()
        session = self.store.read(lambda db: accounts.find_session(db, hashed))
        if session is None or session.has_ended(now):
            return None
        if session.role is not None:
            person = Principal(session.name, session.role, session.pattern, is_user=True)
            account: tuple[Principal, str] | None = person, self.terms
        else:
            account = self._find_account(session.holder, session.name)
        if account is None or account[1] != session.fingerprint:
            return None
        if now - session.seen_at >= _NOTED:
            self.store.write(lambda db: accounts.touch_session(db, hashed, now))
        return account[0]

    def end(self, session_id: str) -> None:
        """End the session; it need not exist."""
        self.store.write(lambda db: accounts.remove_session(db, hash_token(session_id)))

    def make_link(self, token_name: str) -> tuple[str, datetime]:
        """A code that begins one session of the token, and when it ends; it does not outlive this process."""
        code, now = secrets.token_urlsafe(32), self.clock()
        with self._lock:
            self._links = {key: item for key, item in self._links.items() if item[1] > now}
            while len(self._links) >= _MOST_LINKS:
                self._links.pop(next(iter(self._links)))
            self._links[hash_token(code)] = token_name, now + LINK_LASTS
        return code, now + LINK_LASTS

    def redeem_link(self, code: str) -> Principal | None:
        """The account of the link, which is used up; None for one that was used, has ended or never was."""
        with self._lock:
            name, ends_at = self._links.pop(hash_token(code), ("", self.clock()))
        if not name or ends_at <= self.clock():
            return None
        token = self.tokens.find(name)
        return None if token is None else Principal(token.name, token.role, token.pattern)

    def trim(self) -> int:
        """Forget sessions that have ended; how many."""
        return self.store.write(lambda db: accounts.trim_sessions(db, self.clock()))

    def _find_account(self, holder: Holder, name: str) -> tuple[Principal, str] | None:
        """The account as it is now, and what its sessions depend on."""
        if holder is Holder.USER:
            user = self.store.read(lambda db: accounts.find_user(db, name))
            if user is None:
                return None
            return Principal(user.name, user.role, user.pattern, is_user=True), user.fingerprint
        token = self.tokens.find(name)
        if token is None:
            return None
        fingerprint = token_fingerprint(token.token_hash, token.role, token.pattern)
        return Principal(token.name, token.role, token.pattern), fingerprint
