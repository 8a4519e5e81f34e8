"""Requests that carry a key: the second one with it does nothing, and gets the answer of the first."""

from collections.abc import Callable
from datetime import datetime, timedelta

from amoro_core.errors import Conflict, MalformedRequest
from amoro_core.model.repeats import KeptAnswer
from amoro_core.store import keyed_requests
from amoro_core.store.database import Connection, Store

KEPT_FOR = timedelta(hours=24)


class RepeatingService:
    """Keys of requests for a day. They are written down before anything is done, so that a kill doubles nothing."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def begin(self, key_hash: str, request_hash: str) -> KeptAnswer | None:
        """None for a new key, whose request may be done now; else the answer that was kept.

        Raises Conflict while the first request with the key has not ended, or when it is not known how it ended, and
        MalformedRequest when that was another request.
        """
        now = self._clock()

        def look(db: Connection) -> KeptAnswer | None:
            keyed_requests.remove_older(db, now - KEPT_FOR)
            known = keyed_requests.find(db, key_hash)
            if known is None:
                keyed_requests.add(db, key_hash, request_hash, now)
                return None
            if known.request_hash != request_hash:
                raise MalformedRequest(
                    "the Idempotency-Key was sent with another request", hint="Give each request a key of its own."
                )
            if known.answer is None:
                raise Conflict(
                    "the first request with this Idempotency-Key has not ended, or the coordinator was stopped amid it",
                    hint="Ask again later; after a stop look at what was done, and use another key.",
                )
            return known.answer

        return self._store.write(look)

    def finish(self, key_hash: str, answer: KeptAnswer) -> None:
        """Keep the answer of the request with the key."""
        self._store.write(lambda db: keyed_requests.save_answer(db, key_hash, answer))

    def forget(self, key_hash: str) -> None:
        """Let the key be used again: its request did nothing."""
        self._store.write(lambda db: keyed_requests.remove(db, key_hash))
