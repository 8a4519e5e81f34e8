"""The audit: who has called what that changes something, and how it ended."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from amoro_core.errors import (
    AmoroError,
    Conflict,
    InvalidArgument,
    MalformedRequest,
    NotAllowed,
    StoreFailed,
    UnknownToken,
)
from amoro_core.logger import get_logger
from amoro_core.model.accounts import KeptAnswer
from amoro_core.model.history_events import KEEP_AUDIT, Audited, AuditEvent, AuditFilter, AuditOutcome, UnknownCallerLog
from amoro_core.model.paging import Page, Window, cut
from amoro_core.store import audit
from amoro_core.store.database import Connection, Store

log = get_logger("amoro.audit")

#: How far calls are counted.
COUNTED = 10_000
#: Rows deleted in one write.
ROWS = 1000


class AuditService:
    """Calls that change something, from before they begin; a call that can't be written down is not made."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._strangers = UnknownCallerLog()
        self._lock = threading.Lock()

    def begin(self, call: Audited) -> Callable[[BaseException | None], None]:
        """Write down that the call begins; what is returned takes its error, None for none, and writes its outcome.

        Without a coordinator nothing is written: what runs then changes nothing, a dry run included. Raises
        StoreFailed: then the call is not to be made.
        """
        if self._store.only_reads:
            return lambda error: None
        number = self._store.write(lambda db: audit.add(db, call, self._clock()))

        def end(error: BaseException | None) -> None:
            outcome, code = _outcome(error)
            try:
                self._store.write(lambda db: audit.end(db, number, outcome, code))
            except StoreFailed as failure:
                # The call was made: its row stays as begun.
                log.error("audit.failed", row=number, operation=call.operation, outcome=outcome, why=failure.message)

        return end

    def note(self, call: Audited, error: BaseException | None) -> None:
        """Write down a call that has ended. Raises StoreFailed."""
        outcome, code = _outcome(error)
        self._store.write(lambda db: audit.add(db, call, self._clock(), outcome, code))

    def refuse_stranger(self, call: Audited, error: BaseException) -> None:
        """Write down that nobody known was refused, for a few calls in a minute; the others are counted.

        Raises nothing for a store that fails: the refusal is the answer.
        """
        if self._store.only_reads:
            return
        with self._lock:
            event = self._strangers.row(call, self._clock())
        if event is not None:
            try:
                self.note(event, error)
            except StoreFailed as failure:
                log.error("audit.failed", operation=call.operation, outcome=AuditOutcome.REFUSED, why=failure.message)

    def list_events(self, wanted: AuditFilter, window: Window) -> tuple[Page[AuditEvent], bool]:
        """Calls, the newest first, and whether their total is exact; the window has a limit. Raises InvalidArgument."""
        before, most = _number(window.after), window.limit

        def read(db: Connection) -> tuple[Page[AuditEvent], bool]:
            total = audit.count(db, wanted, COUNTED + 1)
            found = audit.list_newest(db, wanted, before, most + 1)
            return cut(found, most, min(total, COUNTED), lambda item: str(item.event_id)), total <= COUNTED

        return self._store.read(read)

    def trim(self) -> int:
        """Forget what is past its retention; how many. Calls of strangers that were only counted get one row."""
        with self._lock:
            left = self._strangers.left()
        if left is not None:
            self.note(left, UnknownToken("the token is not known"))
        before, forgotten = self._clock() - KEEP_AUDIT, 0
        while removed := self._store.write(lambda db: audit.trim(db, before, ROWS)):
            forgotten += removed
        return forgotten


def _outcome(error: BaseException | None) -> tuple[AuditOutcome, str]:
    if error is None:
        return AuditOutcome.DONE, ""
    code = error.code if isinstance(error, AmoroError) else AmoroError.code
    return AuditOutcome.REFUSED if isinstance(error, NotAllowed | UnknownToken) else AuditOutcome.FAILED, code


def _number(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidArgument(f"{text!r} is not a place in the audit", hint="Give what `next` of the page before says.")
    return int(text)


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
            audit.remove_older_requests(db, now - KEPT_FOR)
            known = audit.find_answer(db, key_hash)
            if known is None:
                audit.add_request(db, key_hash, request_hash, now)
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
        self._store.write(lambda db: audit.save_answer(db, key_hash, answer))

    def forget(self, key_hash: str) -> None:
        """Let the key be used again: its request did nothing."""
        self._store.write(lambda db: audit.remove_request(db, key_hash))
