"""A proxy between client and catalog that answers commits otherwise than the catalog does, by a script."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Response:
    """What the catalog answers."""

    status: int
    body: bytes


class Cut(StrEnum):
    """Ways in which an answer does not arrive whole."""

    RESET = "reset"  # the connection is reset before the first byte
    BROKEN_BODY = "broken-body"  # 200, and half of the JSON
    SHORT_BODY = "short-body"  # the connection ends before the announced length
    HANG = "hang"  # nothing ever comes


@dataclass(frozen=True, slots=True)
class Reply:
    """A response as the client gets it."""

    response: Response
    cut: Cut | None = None


class Applied(StrEnum):
    """When the catalog sees a commit."""

    NOW = "now"
    NEVER = "never"
    LATE = "late"  # after the error was answered


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of one commit request."""

    applied: Applied
    answer: int | Cut
    after: int = 1  # a late one is applied after so many further requests have been answered

    def __str__(self) -> str:
        late = f" after {self.after} requests" if self.applied is Applied.LATE else ""
        return f"applied {self.applied}{late}, answered {self.answer}"


@dataclass(slots=True, eq=False)
class _Late:
    forward: Callable[[], Response]
    wait: int


@dataclass(slots=True)
class Proxy:
    """Takes commits through one after the other, each by the next fault of the script; an empty script is honest."""

    script: deque[Fault | None] = field(default_factory=deque)
    #: Statuses with which the next other requests (loads) are answered; 0 lets one through.
    loads: deque[int] = field(default_factory=deque)
    #: Answers to the next loads of the table, as a replica that lags behind gives them; None lets one through.
    stale: deque[Response | None] = field(default_factory=deque)
    #: Run once, when the next commit has arrived and is not yet applied.
    before_commit: Callable[[], object] | None = None
    #: The catalog's own answers to commits, in the order in which it saw them.
    applied: list[int] = field(default_factory=list)
    #: The bodies of all commits, as they came from the client.
    sent: list[bytes] = field(default_factory=list)
    #: The faults that were played, in order.
    played: list[Fault] = field(default_factory=list)
    #: The requests that were left without an answer.
    hung: int = 0
    _late: list[_Late] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def plan(self, *faults: Fault | None) -> None:
        """Answer the next commits so; None is an honest answer."""
        self.script.extend(faults)

    def handle(self, forward: Callable[[], Response], commit: bytes | None, *, loads_table: bool = False) -> Reply:
        """Answer one request, then apply what was late until now; `commit` is a commit's body."""
        with self._lock:
            earlier = tuple(self._late)
            old = self.stale.popleft() if loads_table and self.stale else None
            if old is not None:
                reply = Reply(old)
            else:
                reply = self._other(forward) if commit is None else self._commit(forward, commit)
            for late in earlier:
                late.wait -= 1
                if late.wait <= 0 and late in self._late:
                    self._late.remove(late)
                    self._apply(late.forward)
            return reply

    def forget(self) -> None:
        """Be honest from now on; what is late stays so."""
        self.before_commit = None
        self.script.clear()
        self.loads.clear()

    def release(self) -> int:
        """Apply all that is late, in its order; returns how many there were."""
        with self._lock:
            late, self._late = self._late, []
            for one in late:
                self._apply(one.forward)
            return len(late)

    def _other(self, forward: Callable[[], Response]) -> Reply:
        status = self.loads.popleft() if self.loads else 0
        return Reply(_faulty(status) if status else forward())

    def _commit(self, forward: Callable[[], Response], body: bytes) -> Reply:
        self.sent.append(body)
        if (run := self.before_commit) is not None:
            self.before_commit = None
            run()
        fault = self.script.popleft() if self.script else None
        if fault is None:
            return Reply(self._apply(forward))
        self.played.append(fault)
        response = Response(200, b'{"metadata-location": "file:/nowhere", "metadata": {}}')
        if fault.applied is Applied.NOW:
            response = self._apply(forward)
        elif fault.applied is Applied.LATE:
            self._late.append(_Late(forward, fault.after))
        if isinstance(fault.answer, Cut):
            return Reply(response, fault.answer)
        return Reply(_faulty(fault.answer))

    def _apply(self, forward: Callable[[], Response]) -> Response:
        response = forward()
        self.applied.append(response.status)
        return response


def _faulty(status: int) -> Response:
    error = {"message": f"the proxy answers {status}", "type": "FaultException", "code": status}
    return Response(status, json.dumps({"error": error}).encode())
