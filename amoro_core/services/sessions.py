"""HTTP sessions of users, tokens and people of an OpenID provider, and login links, which are used once."""

import hashlib
import secrets
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from amoro_core.errors import NotAllowed
from amoro_core.events import get_logger
from amoro_core.model.accounts import LINK_LASTS, Holder, HttpSession, token_fingerprint
from amoro_core.model.principals import Principal
from amoro_core.model.tokens import AccessToken
from amoro_core.store import http_sessions, user_accounts
from amoro_core.store.database import Store

log = get_logger("amoro.sessions")

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
        self._store.write(lambda db: http_sessions.add(db, made))
        log.info("session.begun", account=principal.name, holder=holder.value)
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
        self._store.write(lambda db: http_sessions.add(db, made))
        log.info("session.begun", account=person.name, holder=made.holder.value)
        return session_id

    def find(self, session_id: str) -> Principal | None:
        """Who the session stands for; None when it has ended."""
        hashed, now = _hash(session_id), self._clock()

        session = self._store.read(lambda db: http_sessions.find(db, hashed))
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
            self._store.write(lambda db: http_sessions.touch(db, hashed, now))
        return known[0]

    def end(self, session_id: str) -> None:
        """End the session; it need not exist."""
        hashed = _hash(session_id)
        self._store.write(lambda db: http_sessions.remove(db, hashed))

    def make_link(self, token_name: str) -> tuple[str, datetime]:
        """A code that begins one session of the token, and when it ends; it does not outlive this process."""
        code, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            self._links = {key: item for key, item in self._links.items() if item[1] > now}
            while len(self._links) >= _MOST_LINKS:
                self._links.pop(next(iter(self._links)))
            self._links[_hash(code)] = token_name, now + LINK_LASTS
        return code, now + LINK_LASTS

    def spend_link(self, code: str) -> Principal | None:
        """The account of the link, which is used up; None for one that was used, has ended or never was."""
        with self._lock:
            name, ends_at = self._links.pop(_hash(code), ("", self._clock()))
        if not name or ends_at <= self._clock():
            return None
        token = self._tokens(name)
        return None if token is None else Principal(token.name, token.role, token.pattern)

    def trim(self) -> int:
        """Forget sessions that have ended; how many."""
        return self._store.write(lambda db: http_sessions.trim(db, self._clock()))

    def _known(self, holder: Holder, name: str) -> tuple[Principal, str] | None:
        """The account as it is now, and what its sessions depend on."""
        if holder is Holder.USER:
            user = self._store.read(lambda db: user_accounts.find(db, name))
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
