"""Delivers the events of the journal to listeners: webhooks, and functions of packages."""

import base64
import hmac
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from urllib3 import HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPSConnection
from urllib3.exceptions import HTTPError

from amoro_core.errors import AmoroError, Fenced, NotAllowed, NotFound, StoreFailed, WorkFailed
from amoro_core.logger import get_logger
from amoro_core.metrics_registry import Series
from amoro_core.model import metrics
from amoro_core.model.alert_rules import ActiveAlert
from amoro_core.model.history_events import About, Event, EventFilter, EventKind
from amoro_core.model.listeners import Listener, ListenerCursor, Webhook, is_private
from amoro_core.model.text_sanitizing import LONGEST_REASON, briefly, without_secrets
from amoro_core.store import events
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.journal import append_event

log = get_logger("amoro.listeners")

#: Takes a CloudEvent; after any error the event comes again.
Receive = Callable[[Mapping[str, Any]], object]

#: Events that are read at once, and for how long they are sent before it is stored that they were: after a kill a
#: listener gets these again.
BATCH, STORED_AFTER = 200, timedelta(seconds=1)
TIMEOUT_S = 10.0  # to connect, and for each wait for an answer
_ANSWER_BYTES = 65_536  # that are read, so that the connection can be used again


class _PublicConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        """Checks the address that is connected to: the name may have had another one a moment before."""
        sock = super()._new_conn()
        if is_private(address := sock.getpeername()[0]):
            sock.close()
            raise NotAllowed(f"{self.host} has the private address {address}", hint="Set allow-private: true.")
        return sock


class _PublicPool(HTTPSConnectionPool):
    ConnectionCls = _PublicConnection


def posting(hook: Webhook, key: Callable[[], bytes], timeout_s: float = TIMEOUT_S) -> Receive:
    """What posts events to the URL, signed by Standard Webhooks.

    It raises WorkFailed unless the answer is 2xx, and NotAllowed for a private address; it sends once, and follows no
    redirect.
    """
    http = PoolManager(timeout=timeout_s, retries=False, cert_reqs="CERT_REQUIRED")
    if not hook.allow_private:  # then the URL is https
        http.pool_classes_by_scheme = {"https": _PublicPool}

    def receive(event: Mapping[str, Any]) -> None:
        body, stamp = json.dumps(event).encode(), str(int(time.time()))
        signature = hmac.digest(key(), f"{event['id']}.{stamp}.".encode() + body, "sha256")
        headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "webhook-id": event["id"],
            "webhook-timestamp": stamp,
            "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
        }
        try:
            answer = http.request("POST", hook.url, body=body, headers=headers, preload_content=False)
            with answer:
                answer.read(_ANSWER_BYTES)
        except HTTPError as error:
            raise WorkFailed(f"{hook.target} can't be reached: {error}") from error
        if not 200 <= answer.status < 300:
            raise WorkFailed(f"{hook.target} answered HTTP {answer.status}")

    return receive


@dataclass(frozen=True, slots=True)
class ListenerStatus:
    """A listener and how far it is; `pending` is the oldest event that it is still to get, None: it has all."""

    listener: Listener
    cursor: ListenerCursor
    unseen: Sequence[Event]  # the next in the journal
    pending: Event | None


@dataclass
class ListenerService:
    """Each listener has its own place in the journal: it gets events in their order, and waits for no other."""

    store: Store
    clock: Callable[[], datetime]
    receivers: Mapping[Listener, Receive]
    document: Callable[[Event], Mapping[str, Any]]  # of schema amoro.event/v1

    def asks_for(self, kind: EventKind, table: str) -> bool:
        """Whether any listener gets events of that kind about the table."""
        return any(receiver.admits(kind, table) for receiver in self.receivers)

    def begin(self) -> None:
        """Let new listeners begin now; forget those that are gone once events that they have not got are deleted."""
        self.store.write(lambda db: events.keep_cursors(db, [receiver.name for receiver in self.receivers]))

    def deliver(self, listener: Listener) -> None:
        """Send a listener what it has not got. An event that fails is sent again before any later one."""
        while self._deliver_some(listener):
            pass

    def _deliver_some(self, listener: Listener) -> bool:
        """Send events for about a second; whether more can be sent now."""
        begun = self.clock()
        if self.store.read(lambda db: events.cursor_of(db, listener.name)).is_waiting(begun):
            return False
        status = self.store.read(lambda db: _status(db, listener))
        if not status.unseen:
            return False
        cursor = status.cursor
        for event in status.unseen:
            if listener.admits(event.kind, event.about.table):
                if self.clock() - begun >= STORED_AFTER:
                    break
                try:
                    self.receivers[listener](self._cloud_event(event))
                except Exception as error:
                    why = f"[{error.code}] {error.message}" if isinstance(error, AmoroError) else repr(error)
                    cursor = cursor.failed(briefly(without_secrets(why), LONGEST_REASON), self.clock())
                    log.warning("listener.failed", listener=listener.name, why=cursor.failure)
                    break
                cursor = ListenerCursor(cursor.listener_name, event.event_id, cursor.lost_events)
            cursor = replace(cursor, event_id=event.event_id)
        self.store.write(partial(events.save_cursor, cursor=cursor))
        return not cursor.failures

    def statuses(self) -> list[ListenerStatus]:
        """Every listener and how far it is."""
        return self.store.read(lambda db: [_status(db, receiver) for receiver in self.receivers])

    def resume(self, name: str) -> ListenerStatus:
        """Forget failures and losses of a listener, so that it is tried at once. Raises NotFound."""

        def change(db: Connection) -> ListenerStatus:
            for receiver in self.receivers:
                if receiver.name == name:
                    events.save_cursor(db, ListenerCursor(name, _status(db, receiver).cursor.event_id))
                    return _status(db, receiver)
            raise NotFound(f"no listener has the name {name!r}", hint="List them with: amoro listener list")

        return self.store.write(change)

    def gauges(self) -> dict[Series, float]:
        """The lag of each listener; nothing while the state database can't be read."""
        values: dict[Series, float] = {}
        with suppress(StoreFailed, Fenced):
            for status in self.statuses():
                labels, now = (status.listener.name,), self.clock()
                lag = now - status.pending.at if status.pending else timedelta()
                values[metrics.LISTENER_LAG, labels] = lag.total_seconds()
        return values

    def note_condition(self, kind: EventKind, alert: ActiveAlert) -> None:
        """Keep an event of a condition that was raised or cleared, if a listener gets it."""
        about = About(table=alert.named.get("table", ""), group=alert.named.get("group", ""))
        if self.asks_for(kind, about.table):
            data = {"condition": alert.condition.name, "severity": alert.condition.severity.value, **alert.named}
            self.store.write(lambda db: append_event(db, kind, alert.text, about, self.clock(), data))

    def _cloud_event(self, event: Event) -> dict[str, Any]:
        data = self.document(event)
        return {
            "specversion": "1.0",
            "id": f"{event.event_id}-{round(event.at.timestamp() * 1000)}",  # numbers begin anew with the database
            "source": "amoro",
            "type": f"amoro.{event.kind}",
            **({"subject": event.about.table} if event.about.table else {}),
            "time": data["happened_at"],
            "datacontenttype": "application/json",
            "data": data,
        }


def _status(db: Connection, listener: Listener) -> ListenerStatus:
    cursor = events.cursor_of(db, listener.name)
    unseen = events.list_stored_after(db, EventFilter(), cursor.event_id, BATCH)
    if unseen and (lost := unseen[0].event_id - cursor.event_id - 1):  # numbers have gaps only where events are deleted
        cursor = replace(cursor, event_id=cursor.event_id + lost, lost_events=cursor.lost_events + lost)
    pending = next((event for event in unseen if listener.admits(event.kind, event.about.table)), None)
    return ListenerStatus(listener, cursor, unseen, pending)
