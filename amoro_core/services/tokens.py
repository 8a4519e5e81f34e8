"""Who is let in: the tokens of the state directory, and those that somebody created."""

import hmac
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime

import structlog

from amoro_core.errors import InvalidArgument
from amoro_core.model.secrets import Secret
from amoro_core.model.tokens import AccessToken, TokenKind, hash_token
from amoro_core.store import access_tokens
from amoro_core.store.database import Store

log = structlog.get_logger("amoro.tokens")


class TokenService:
    """Tokens by name. Those of the state directory are called as their kind and can't be revoked here."""

    def __init__(self, store: Store, clock: Callable[[], datetime], own: Mapping[TokenKind, Secret]) -> None:
        self._store = store
        self._clock = clock
        self._own = {kind: hash_token(token.reveal()) for kind, token in own.items()}

    def holds(self, kind: TokenKind, token: str) -> bool:
        """Whether the token lets its bearer in as that kind."""
        token_hash = hash_token(token)
        # Hashes of long random tokens: looking one up tells nothing of others, but the own ones cost no read.
        if hmac.compare_digest(token_hash, self._own[kind]):
            return True
        return self._store.read(lambda db: access_tokens.find_by_hash(db, kind, token_hash)) is not None

    def create(self, name: str, kind: TokenKind) -> tuple[AccessToken, str]:
        """A new token, which is shown only here. Raises InvalidArgument (name), AlreadyExists."""
        if not name or not name.isprintable() or any(letter.isspace() for letter in name):
            raise InvalidArgument(f"{name!r} can't be the name of a token", hint="Use letters, digits, _ and -.")
        if name in self._own:
            raise InvalidArgument(f"{name!r} is the state directory's own token", hint="Choose another name.")
        token = f"amo_{secrets.token_urlsafe(32)}"
        made = AccessToken(name, kind, hash_token(token), self._clock())
        self._store.write(lambda db: access_tokens.add(db, made))
        log.info("token.created", name=name, kind=kind.value)
        return made, token

    def list_tokens(self) -> list[AccessToken]:
        """Those that somebody created, in order of their names."""
        return self._store.read(access_tokens.list_tokens)

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
