"""What listeners get of the journal: webhooks, which are signed, and functions of packages."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trustme
from hive_metastore.ttypes import Database
from pyiceberg.types import DoubleType

from amoro_core.bootstrap.settings import load_settings
from amoro_core.documents.json_documents import schemas
from amoro_core.errors import AmoroError, NotAllowed, NotFound, WorkFailed
from amoro_core.model.alert_rules import CONDITIONS, ActiveAlert
from amoro_core.model.history_events import About, Event, EventFilter, EventKind
from amoro_core.model.listeners import LAST_WAIT, PAUSED_AFTER, Listener, ListenerCursor, Webhook, signing_key
from amoro_core.services.listeners import TIMEOUT_S, ListenerService, posting
from amoro_core.store import events
from amoro_core.transactions.journal import append_event
from docs.examples import hive_schemas
from tests.engine import writer
from tests.engine.builders import row
from tests.iceberg.catalog_services import Metastore, served
from tests.listening import SECRET, Server, receiving
from tests.services.world import World, make_small_files


@pytest.fixture
def receiver() -> Iterator[Server]:
    with receiving() as server:
        yield server


def hook(receiver: Server, **more: object) -> Webhook:
    given = {"name": "hooks", "url": receiver.url, "secret": "env:K", "allow-private": True}
    return Webhook.model_validate({**given, **more})


def listen(world: World, listener: Listener, receive: Callable[[Mapping[str, Any]], object]) -> ListenerService:
    world.listeners[listener] = receive
    world.services.listening.begin()
    return world.services.listening


def happen(world: World, times: int, table: str = "cat.db.t") -> None:
    for number in range(times):
        world.store.write(
            lambda db, number=number: append_event(db, EventKind.FAILED, f"no {number}", About(7, table), world.now)
        )


def told(world: World, *kinds: EventKind) -> list[int]:
    """The numbers of the events that are kept."""
    return [event.event_id for event in kept(world, *kinds)]


def kept(world: World, *kinds: EventKind) -> list[Event]:
    return world.store.read(lambda db: events.list_stored_after(db, EventFilter(kinds), 0, 1000))


def test_a_webhook_that_fails_for_a_day_is_paused_and_gets_all_signed_and_in_order_once_it_is_resumed(
    world: World, receiver: Server
) -> None:
    happen(world, 3)
    mine, heard = hook(receiver), []
    listening = listen(world, mine, posting(mine, lambda: signing_key(SECRET)))
    listen(world, other := Listener(name="code"), heard.append)
    make_small_files(world.catalog)
    world.refresh()
    listening.deliver(mine)
    first, *_ = told(world, EventKind.SCHEMA_CHANGED, EventKind.FOUND)
    assert first > 3, "it begins where it is new"
    assert receiver.ids == told(world)[3:]
    (found, *_) = receiver.taken
    assert (found["specversion"], found["source"], found["type"]) == ("1.0", "amoro", "amoro.found")
    assert (found["subject"], found["data"]["kind"], found["time"]) == ("cat.db.t", "found", "2026-03-01T12:00:00.000Z")
    jsonschema.validate({"schema": "amoro.event/v1", **found["data"]}, schemas()["amoro.event/v1"])

    receiver.status = 500
    happen(world, 450)
    begun, waits = world.now, []
    while (status := listening.statuses()[0]).cursor.retry_at or not status.cursor.failures:
        listening.deliver(mine)
        if retry_at := listening.statuses()[0].cursor.retry_at:
            waits.append(retry_at - world.now)
            listening.deliver(mine)  # too early
            world.restart()
            listening = world.services.listening
            world.now = retry_at
    assert waits == [min(timedelta(seconds=2**n), LAST_WAIT) for n in range(len(waits))]
    assert PAUSED_AFTER <= world.now - begun < PAUSED_AFTER + LAST_WAIT
    assert receiver.refused == len(waits) + 1
    assert status.cursor.failure == f"[AMORO-1001] http://127.0.0.1:{receiver.server_port} answered HTTP 500"
    listening.deliver(other)
    ids = [f"{one.event_id}-{round(one.at.timestamp() * 1000)}" for one in kept(world)]
    assert [event["id"] for event in heard] == ids[3:]

    # What listens is behind, and the other one is told so.
    world.meters.ask_all("listeners", listening.gauges)
    world.services.conditions.look()
    listening.deliver(other)
    raised = [one["data"]["text"] for one in heard if one["type"] == "amoro.condition-raised"]
    assert raised == ["Listener hooks is 1.01d behind"]
    receiver.status = 204
    world.later(7200)
    listening.deliver(mine)
    assert receiver.refused == len(waits) + 1, "it is paused"
    assert listening.resume("hooks").cursor.failures == 0
    listening.deliver(mine)
    assert receiver.ids == told(world)[3:]
    assert listening.statuses()[0].pending is None
    with pytest.raises(NotFound, match="hook'"):
        listening.resume("hook")


def test_what_is_deleted_before_a_listener_got_it_is_counted_until_it_is_resumed(world: World) -> None:
    heard: list[Mapping[str, Any]] = []
    listening = listen(world, one := Listener(name="code"), heard.append)
    happen(world, 5)
    world.later(60)
    happen(world, 2)
    world.store.write(lambda db: events.trim(db, world.now, 100))
    assert listening.statuses()[0].cursor.lost_events == 5
    listening.deliver(one)
    world.restart()
    listening = world.services.listening
    assert [event["data"]["text"] for event in heard] == ["no 0", "no 1"]
    assert listening.statuses()[0].cursor.lost_events == 5
    assert listening.resume("code").cursor.lost_events == 0
    # One that was gone for a while gets what it missed, and is forgotten once the journal is past it.
    del world.listeners[one]
    happen(world, 1)
    listening.begin()
    listening = listen(world, one, heard.append)
    listening.deliver(one)
    assert [event["data"]["text"] for event in heard[2:]] == ["a coordinator began, epoch 2", "no 0"]
    del world.listeners[one]
    happen(world, 3)
    world.later(60)
    happen(world, 1)
    world.store.write(lambda db: events.trim(db, world.now, 100))
    listening.begin()
    listen(world, one, heard.append)
    happen(world, 1)
    listening.deliver(one)
    assert [event["data"]["text"] for event in heard[4:]] == ["no 0"]
    # A slow one does not get again after a kill what it got more than a second before.
    stored: list[int] = []

    def take_a_second(_: Mapping[str, Any]) -> None:
        stored.append(listening.statuses()[0].cursor.event_id)
        world.store.write(lambda _: None)  # others write while it is sent
        world.now += timedelta(seconds=1)
        if len(stored) == 1:
            raise OSError("https://ann:geheim@x.org is away")

    listen(world, one, take_a_second)
    happen(world, 3)
    listening.deliver(one)
    failure = listening.statuses()[0].cursor.failure
    assert ("is away" in failure, "geheim" in failure) == (True, False)
    world.now += timedelta(seconds=1)
    listening.deliver(one)
    first = told(world)[-3]
    assert stored == [first - 1, first - 1, first, first + 1]
    assert (listening.statuses()[0].cursor.failures, listening.statuses()[0].cursor.failure) == (0, "")
    set_back = ListenerCursor("code", 0, failures=1, retry_at=world.now + 2 * LAST_WAIT)
    assert not set_back.is_waiting(world.now)


def test_a_listener_gets_its_kinds_of_its_tables_and_changes_are_kept_for_who_asks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_small_files(world.catalog)
    world.refresh()
    conditions = (EventKind.CONDITION_RAISED, EventKind.CONDITION_CLEARED)
    asked = (EventKind.SCHEMA_CHANGED, EventKind.TABLE_CHANGED, *conditions)
    writer.append(table, [row(7)])
    world.refresh()
    alert = ActiveAlert(next(one for one in CONDITIONS if not one.when.by), (), 1.0, world.now)
    world.services.listening.note_condition(EventKind.CONDITION_RAISED, alert)
    assert told(world, *asked) == []
    changes: list[Mapping[str, Any]] = []
    others: list[Mapping[str, Any]] = []
    one = Listener(name="one", kinds=frozenset({EventKind.TABLE_CHANGED}), on="cat.**")
    listening = listen(world, one, changes.append)
    listen(world, two := Listener(name="two", on="cat.elsewhere.*"), others.append)
    metastore = Metastore()
    metastore.create_database(Database(name="db"))
    with served(metastore) as uri:
        monkeypatch.setenv("HIVE_METASTORE", uri)
        three = Listener(name="three", kinds=frozenset({EventKind.SCHEMA_CHANGED}))
        listen(world, three, hive_schemas.show_schema)
        for number in range(3):
            if number == 1:
                with table.update_schema() as update:
                    update.add_column("price", DoubleType())
            world.refresh()
            listening.deliver(three)
            listening.deliver(three)
    shown = {column.name: column.type for column in metastore.get_table("db", "t").sd.cols}
    assert (shown["id"], shown["price"]) == ("bigint", "double")
    assert len(told(world, EventKind.SCHEMA_CHANGED)) == 2
    listening.deliver(one)
    listening.deliver(two)
    assert others == []
    assert [(event["type"], event["subject"]) for event in changes] == [("amoro.table-changed", "cat.db.t")]
    assert changes[0]["data"]["data"]["metadata_location"] == world.table().metadata_location


def test_a_private_address_is_refused_when_it_is_connected_to_and_no_redirect_is_followed(receiver: Server) -> None:
    event = {"id": "1-1"}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Not written as an address: a name that leads there.
        private = Webhook(name="a", secret="env:K", url=f"https://127.1:{listening.getsockname()[1]}/")
        with pytest.raises(NotAllowed, match=r"127\.1 has the private address 127\.0\.0\.1"):
            posting(private, lambda: b"key")(event)
        with listening.accept()[0] as accepted:
            assert accepted.recv(1) == b"", "nothing was sent"
    authority, hellos = trustme.CA(), []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.sni_callback = lambda *_: hellos.append(1)
    with receiving() as forged:
        forged.socket = context.wrap_socket(forged.socket, server_side=True)
        with pytest.raises(WorkFailed, match="certificate verify failed"):
            posting(hook(forged, url=forged.url.replace("http:", "https:")), lambda: b"key")(event)
    assert len(hellos) == 1, "it is not tried again"
    with socket.create_server(("127.0.0.1", 0)) as endless:
        url = f"http://127.0.0.1:{endless.getsockname()[1]}"
        sending = threading.Thread(target=answer_without_end, args=(endless,))
        sending.start()
        posting(hook(receiver, url=url), lambda: b"key")(event)
        sending.join()
    assert TIMEOUT_S <= 10
    with socket.create_server(("127.0.0.1", 0)) as silent:
        leaving = threading.Timer(5.0, silent.close)
        leaving.start()
        with pytest.raises(WorkFailed, match="timed out"):
            posting(hook(receiver, url=f"http://127.0.0.1:{silent.getsockname()[1]}"), lambda: b"key", 0.1)(event)
        leaving.cancel()
    receiver.status = 302
    with pytest.raises(WorkFailed, match="answered HTTP 302"):
        posting(hook(receiver), lambda: signing_key(SECRET))(event)
    receiver.status = 204
    posting(hook(receiver), lambda: signing_key(SECRET))(event)
    with pytest.raises(WorkFailed, match="answered HTTP 401"):
        posting(hook(receiver), lambda: b"another key")(event)
    assert [one["id"] for one in receiver.taken] == ["1-1"]


def answer_without_end(server: socket.socket) -> None:
    """64 kB of a large one, then nothing until the client goes."""
    with server.accept()[0] as connection, suppress(ConnectionError):
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + bytes(1 << 16))
        connection.recv(1)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("7", "listener without a name: name: Field required"),
        ("{name: a, url: 'https://x.org', secret: geheim}", "listener a: secret: String should match pattern"),
        ("{name: a, url: 'http://x.org', secret: 'env:K'}", "url 'http://x.org': it is not encrypted"),
        ("{name: a, url: 'https://10.0.0.1/?k=geheim', secret: 'env:K'}", "url 'https://10.0.0.1/: it leads to"),
        ("{name: a, url: 'https://[::ffff:7f00:1]/', secret: 'env:K'}", "it leads to a private address"),
        ("{name: a, url: 'https://u:geheim@x.org', secret: 'env:K'}", "it has no host, or a user"),
        ("{name: a, url: 'https://x.org', secret: 'env:K', kinds: [commited]}", "kinds 'commited': Input should be"),
        ("{name: a, url: 'https://x.org', secret: 'env:K', on: 'shop.*'}", "'shop.*' matches no table"),
        ("&one {name: a, url: 'https://x.org', secret: 'env:K'}\n- *one", "listeners has the name a twice"),
    ],
)
def test_a_bad_listener_is_named_with_its_value_and_the_way_out(tmp_path: Path, entry: str, why: str) -> None:
    (tmp_path / "amoro.yaml").write_text(f"listeners:\n- {entry}\n")
    with pytest.raises(AmoroError) as refused:
        load_settings(tmp_path, None, {})
    assert why in refused.value.message
    assert refused.value.hint
    assert refused.value.exit_status == 2
    assert "geheim" not in f"{refused.value.message} {refused.value.hint}"


def test_a_listener_of_the_settings_is_shown_without_what_may_be_secret(tmp_path: Path) -> None:
    text = "[{name: hooks, url: 'https://x.org/geheim?k=geheim', secret: 'file:/run/key', on: 'shop.**'}]"
    found = load_settings(tmp_path, None, {"AMORO_LISTENERS": text})
    (listener,) = found.listeners
    assert listener.admits(EventKind.FAILED, "shop.db.t")
    assert not listener.admits(EventKind.FAILED, "")
    assert not listener.admits(EventKind.TABLE_CHANGED, "shop.db.t")
    shown = {key: value for key, value, origin in found.described() if origin != "default"}
    assert shown == {"listeners.hooks": "https://x.org, secret file:/run/key"}


@pytest.mark.parametrize("text", ["whsec_" + base64.b64encode(b"short").decode(), "whsec_%", "short"])
def test_a_key_is_not_short_and_base64_where_it_says_so(text: str) -> None:
    assert signing_key(SECRET) == b"a key of no less than 24 bytes"
    assert signing_key("x" * 24) == b"x" * 24
    with pytest.raises(ValueError):
        signing_key(text)
