"""The HTTP server of a coordinator: where it listens, whom it answers, how it ends, and what open pages fetch."""

import asyncio
import ssl
import threading
from contextlib import closing
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from amoro_core.bootstrap import coordinator_app
from amoro_core.bootstrap.coordinator_app import PEOPLE_THREADS, embedded_optimizer
from amoro_core.bootstrap.settings import Settings
from amoro_core.errors import InvalidSettings
from amoro_core.model.principals import Certificates, Role
from amoro_core.model.processes import ResourceGroup
from amoro_core.notifier import Changes, wait_for
from amoro_core.web import static
from amoro_core.web.server import Listener, WebServer
from tests.dashboard.served import Served, serving
from tests.rpc.certificates import Authority

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)


def test_probes_answer_everybody_and_metrics_who_may_look(served: Served) -> None:
    assert (served.ask("/livez", token="").body, served.ask("/readyz", token="").body) == ("ok\n", "ok\n")
    refused = served.ask("/metrics", token="")
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert served.ask("/metrics", token="amo_wrong").status == 401
    assert served.ask("/metrics", token=served.coordinator.enrolment_token.reveal()).status == 401
    _, viewer = served.coordinator.tokens.create("scraper", Role.VIEWER)
    told = served.ask("/metrics", token=viewer)
    assert told.status == 200
    assert 'amoro_build_info{version="0.1.0"} 1.0' in told.body


def test_how_long_requests_take_is_told_by_route_and_never_by_what_a_stranger_asks_for(served: Served) -> None:
    for path in ("/tables/a.b.c", "/tables/d.e.f", "/wp-admin", "/x/y/z"):
        served.ask(path)
    told = served.ask("/metrics").body
    assert 'amoro_http_seconds_count{route="/tables/{table}"} 2.0' in told
    assert 'amoro_http_seconds_count{route="unknown"}' in told
    assert "wp-admin" not in told


def test_every_answer_has_the_guarding_headers_also_a_refusal(served: Served) -> None:
    guards = {"content-security-policy": POLICY, "cache-control": "no-store", "referrer-policy": "same-origin"}
    guards["x-content-type-options"] = "nosniff"
    foreign = served.ask("/livez", headers={"Host": "evil.example"})
    for answer in (served.ask("/livez"), served.ask("/nowhere"), foreign, served.ask("/livez", "POST")):
        assert {name: answer.headers[name] for name in guards} == guards
        assert "server" not in answer.headers


def test_a_name_that_is_not_ours_is_answered_with_421(served: Served) -> None:
    evil = ("evil.example", "evil.example:1630", "localhost.evil.example", "127.0.0.1.evil.example", "")
    for status, hosts in ((200, ("localhost:1630", "LOCALHOST", "127.0.0.1", "[::1]:80")), (421, evil)):
        for host in hosts:
            assert served.ask("/livez", headers={"Host": host}).status == status, host


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 405),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"}, 403),
        ({"Origin": "http://127.0.0.1"}, 405),
        ({"Origin": "https://127.0.0.1"}, 403),
        ({"Origin": "http://127.0.0.1:81"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 403),
        ({"Authorization": "Bearer amo_x", "Sec-Fetch-Site": "cross-site"}, 405),
    ],
    ids=str,
)
def test_a_browser_changes_something_from_our_pages_alone(served: Served, headers: dict[str, str], status: int) -> None:
    """405: the guard let it through to a path that takes no POST."""
    cookie = {"Host": "127.0.0.1", "Cookie": "a=b"}
    assert served.ask("/livez", "POST", token="", headers={**cookie, **headers}).status == status


def test_static_files_are_kept_by_browsers_as_long_as_their_address_lasts(served: Served) -> None:
    names = [path.name for path in static.DIRECTORY.iterdir() if path.suffix in (".css", ".js", ".svg")]
    for name in names:
        kept = served.ask(static.url(name), token="").headers
        assert kept["cache-control"] == "public, max-age=31536000, immutable"
    assert served.ask("/static/__init__.py", token="").status == 404
    assert served.ask("/static/../app.py", token="").status == 404


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"http_host": "0.0.0.0"}, "http-host 0.0.0.0 is beyond loopback"),
        ({"http_host": "203.0.113.7", "insecure": True}, "host 203.0.113.7 can't be listened on"),
        ({"tls_certificate": "/nowhere", "tls_key": "/nowhere"}, "tls-certificate /nowhere can't be read"),
    ],
    ids=str,
)
def test_where_it_may_not_listen_is_refused_by_name(settings: dict[str, object], said: str) -> None:
    wanted = Settings().with_values("test", http_port=1630, **settings)
    with pytest.raises(InvalidSettings, match=said):
        coordinator_app.listening(wanted).__enter__()


def test_a_renewed_certificate_is_taken_for_the_next_connection(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("127.0.0.1", to="now")
    files = Certificates(tmp_path / "now.crt", tmp_path / "now.key")
    listener = Listener("127.0.0.1", 0, files)
    server = WebServer(listener, _answering)
    server.start()
    try:
        assert listener.address == f"https://127.0.0.1:{listener.port}"
        before = _certificate(listener.port, authority)
        assert _certificate(listener.port, authority) == before
        authority.issue("127.0.0.1", to="now")
        after = _certificate(listener.port, authority)
        assert after != before
        files.key.write_text("no key")  # half of a renewal: the last usable pair goes on
        assert _certificate(listener.port, authority) == after
    finally:
        server.stop()


async def _answering(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("here")(scope, receive, send)


def _certificate(port: int, authority: Authority) -> bytes | None:
    """What a client that trusts the authority is shown, after an answer."""
    context = ssl.create_default_context(cafile=str(authority.file))
    with closing(HTTPSConnection("127.0.0.1", port, timeout=90, context=context)) as connection:
        connection.request("GET", "/")
        assert isinstance(connection.sock, ssl.SSLSocket)
        shown = connection.sock.getpeercert(binary_form=True)
        assert connection.getresponse().read() == b"here"
        return shown


def test_a_change_wakes_the_coroutines_of_every_loop_that_is_bound() -> None:
    changes, woken = Changes(), []
    ready = threading.Barrier(3)

    async def wait(name: str) -> None:
        changes.bind(asyncio.get_running_loop())
        event = changes.current()
        ready.wait(60)
        await wait_for(event, 60)
        woken.append((name, event.is_set(), changes.current().is_set()))

    loops = [threading.Thread(target=lambda name=name: asyncio.run(wait(name))) for name in ("a", "b")]
    for loop in loops:
        loop.start()
    ready.wait(60)
    changes.fire()
    for loop in loops:
        loop.join()
    assert sorted(woken) == [("a", True, False), ("b", True, False)]
    changes.fire()  # closed loops are passed over


PEER, CLIENT = "127.0.0.1", "203.0.113.9"


@pytest.mark.parametrize(("proxies", "told"), [([], PEER), (["127.0.0.0/8"], CLIENT), (["10.0.0.0/8"], PEER)])
def test_what_a_trusted_proxy_says_of_its_client_counts(tmp_path: Path, proxies: list[str], told: str) -> None:
    with serving(tmp_path / "home", replace(Settings(), trusted_proxies=tuple(proxies))) as served:
        said = {"X-Forwarded-For": CLIENT, "X-Forwarded-Proto": "https"}
        assert served.ask("/api/v1/groups", "POST", body={"name": "g"}, headers=said).status == 201
        (noted,) = served.ask("/api/v1/audit?operation=CreateGroup").document["items"]
        assert (noted["address"], noted["way"], noted["outcome"]) == (told, "rest", "done")
        # Behind it a page is at https.
        page = {"Host": "127.0.0.1", "Cookie": "a=b", "Origin": "https://127.0.0.1", **said}
        assert served.ask("/livez", "POST", token="", headers=page).status == (405 if told == CLIENT else 403)


def test_however_many_people_wait_an_optimizer_is_answered(served: Served) -> None:
    """Each thread for people is held; an optimizer registers all the same, and people are answered afterwards."""
    coordinator, held = served.coordinator, threading.Event()
    waiting = [coordinator.people_pool.submit(held.wait, 60) for _ in range(4 * PEOPLE_THREADS)]
    try:
        with embedded_optimizer(coordinator, 1, 512 * 1024 * 1024):
            assert not any(one.done() for one in waiting)
    finally:
        held.set()
    assert served.ask("/api/v1/status").status == 200


def test_an_open_page_gets_its_content_alone_and_only_if_it_has_changed(served: Served) -> None:
    assert "data-live" in served.ask("/groups").body
    part = served.ask("/groups", headers={"Amoro-Fragment": "1"})
    assert part.status == 200
    assert "<html" not in part.body
    assert "<h1>Groups</h1>" in part.body, "with the heading, which has the state of a table"
    assert "Optimizer groups by name" in part.body
    seen = {"Amoro-Fragment": "1", "If-None-Match": part.headers["etag"]}
    unchanged = served.ask("/groups", headers=seen)
    assert (unchanged.status, unchanged.body, unchanged.headers["etag"]) == (304, "", part.headers["etag"])
    served.coordinator.groups.create(ResourceGroup("seen-by-open-pages"))
    changed = served.ask("/groups", headers=seen)
    assert (changed.status, "seen-by-open-pages" in changed.body) == (200, True)
    served.coordinator.groups.remove("seen-by-open-pages")
    assert served.ask("/groups?after=zzz").status == 200  # no group follows


def test_a_page_that_is_not_live_or_not_there_or_wants_a_login_is_to_be_loaded_whole(served: Served) -> None:
    for path, token in (("/settings", None), ("/groups/none", None), ("/groups", "")):
        assert served.ask(path, headers={"Amoro-Fragment": "1"}, token=token).status == 404
