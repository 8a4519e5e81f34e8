"""Who is let in: the tokens of the state directory, and those that somebody created."""

import hmac
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime

from amoro_core.errors import InvalidArgument
from amoro_core.events import get_logger
from amoro_core.model.paging import Page, cut
from amoro_core.model.secrets import Secret
from amoro_core.model.texts import NAMES, is_name
from amoro_core.model.tokens import AccessToken, Role, hash_token
from amoro_core.store import access_tokens
from amoro_core.store.database import Connection, Store

log = get_logger("amoro.tokens")


class TokenService:
    """Tokens by name. Those of the state directory are called as their role and can't be revoked here."""

    def __init__(self, store: Store, clock: Callable[[], datetime], own: Mapping[Role, Secret]) -> None:
        self._store = store
        self._clock = clock
        self._own = {role: hash_token(token.reveal()) for role, token in own.items()}

    def holds(self, role: Role, token: str) -> bool:
        """Whether the token lets its bearer do what needs that role."""
        found = self.find(token)
        return found is not None and found[1].allows(role)

    def find(self, token: str) -> tuple[str, Role] | None:
        """Name and role of the token; None when it is not known."""
        token_hash = hash_token(token)
        # Hashes of long random tokens: looking one up tells nothing of others, but the own ones cost no read.
        for role, own in self._own.items():
            if hmac.compare_digest(token_hash, own):
                return role.value, role
        found = self._store.read(lambda db: access_tokens.find_by_hash(db, token_hash))
        return None if found is None else (found.name, found.role)

    def create(self, name: str, role: Role) -> tuple[AccessToken, str]:
        """A new token, which is shown only here. Raises InvalidArgument (name), AlreadyExists."""
        if not is_name(name):
            raise InvalidArgument(f"{name!r} can't be the name of a token", hint=NAMES)
        if name in self._own:
            raise InvalidArgument(f"{name!r} is the state directory's own token", hint="Choose another name.")
        token = f"amo_{secrets.token_urlsafe(32)}"
        made = AccessToken(name, role, hash_token(token), self._clock())
        self._store.write(lambda db: access_tokens.add(db, made))
        log.info("token.created", name=name, role=role.value)
        return made, token

    def list_tokens(self, after: str = "", limit: int = 1000) -> Page[AccessToken]:
        """At most so many of those that somebody created, in order of their names, after a name."""

        def read(db: Connection) -> Page[AccessToken]:
            found = access_tokens.list_page(db, after, limit + 1)
            return cut(found, limit, access_tokens.count(db), lambda token: token.name)

        return self._store.read(read)

    def revoke(self, name: str) -> None:
        """Let the token count no more, from the next call on. Optimizers that registered with it stay.

        Raises TokenNotFound, InvalidArgument for a token of the state directory.
        """
        if name in self._own:
            raise InvalidArgument(
                f"{name!r} is the state directory's own token and can't be revoked here",
                hint=f"Stop the coordinator, delete {name}.token there, and start it: a new one is made.",
            )
        self._store.write(lambda db: access_tokens.remove(db, name))
        log.info("token.revoked", name=name)
