"""Access tokens: those of the state directory, and created ones."""

import hmac
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from amoro_core.errors import InvalidArgument, UnknownToken
from amoro_core.events import get_logger
from amoro_core.model.paging import Page, cut
from amoro_core.model.principals import Principal, checked_pattern
from amoro_core.model.secrets import Secret
from amoro_core.model.texts import NAMES, is_name
from amoro_core.model.tokens import AccessToken, Role, hash_token
from amoro_core.store import access_tokens
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
        """A text that tells this state directory from others, and changes with its tokens; not a secret."""
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
        found = self._store.read(lambda db: access_tokens.find_by_hash(db, token_hash))
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
        found = self._store.read(lambda db: access_tokens.find(db, name))
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
        self._store.write(lambda db: access_tokens.add(db, made))
        log.info("token.created", name=name, role=role.value)
        return made, token

    def list_tokens(self, after: str = "", limit: int = 1000) -> Page[AccessToken]:
        """At most `limit` created tokens after a name, sorted by name."""

        def read(db: Connection) -> Page[AccessToken]:
            found = access_tokens.list_page(db, after, limit + 1)
            return cut(found, limit, access_tokens.count(db), lambda token: token.name)

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
        self._store.write(lambda db: access_tokens.remove(db, name))
        log.info("token.revoked", name=name)
