"""A served coordinator for the tests of a module, and the application alone over a seeded state database."""

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from google.protobuf.message import Message
from starlette.testclient import TestClient

from amoro_core.bootstrap.composition import Services
from amoro_core.bootstrap.coordinator_app import offer
from amoro_core.bootstrap.settings import Settings
from amoro_core.web.app import make_app
from tests.admin.rig import ADMIN_TOKEN, services_over
from tests.dashboard.served import Served, serving
from tests.dashboard.states import STATES
from tests.store.builders import open_store

#: What a browser sends with a form of the page that it shows.
OWN = {"Sec-Fetch-Site": "same-origin"}

Site = Callable[..., TestClient]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served") / "home") as made:
        yield made


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Makes clients of the application, whose database is in a state of `states.STATES` or filled by a function."""
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with ExitStack() as ending:

        def client(state: Any = "typical", settings: Settings | None = None) -> TestClient:
            store = ending.enter_context(open_store(tmp_path / "amoro.db"))
            store.write(STATES[state] if isinstance(state, str) else state)
            pool = ending.enter_context(ThreadPoolExecutor(4))
            return client_over(services_over(store, tmp_path, settings), pool, ADMIN_TOKEN)[0]

        yield client


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put ahead."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Asked:
    """The operations of an application: what was asked for, and what tests have them answer, or begin late."""

    def __init__(self, operations: Any) -> None:
        self._operations = operations
        self.methods: list[str] = []
        self.requests: list[Message] = []
        self.before: Callable[[str], None] = lambda method: None
        self.answers: dict[str, Message | Exception] = {}  # in place of the operation's own
        self._slow: dict[str, float] = {}
        self._held: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    def hold(self, method: str, seconds: float) -> None:
        """Let the next call of the method begin only when it is released; so much time passes at once."""
        self._slow[method] = seconds

    def release(self) -> None:
        """What is held goes on."""
        for loop, event in self._held:
            loop.call_soon_threadsafe(event.set)

    async def call(self, method: str, *arguments: Any) -> Any:
        self.methods.append(method)
        self.requests.append(arguments[0])
        self.before(method)
        if method in self._slow:
            loop, event = cast("Loop", asyncio.get_running_loop()), asyncio.Event()
            self._held.append((loop, event))
            loop.ahead += self._slow.pop(method)
            await event.wait()
        answer = self.answers.get(method)
        if isinstance(answer, Exception):
            raise answer
        return answer if answer is not None else await self._operations.call(method, *arguments)


def asked_of(client: TestClient) -> Asked:
    """What the application of this client asks its operations for."""
    found: Asked = client.app.state.context.operations  # type: ignore[attr-defined]
    return found


def client_over(services: Services, pool: ThreadPoolExecutor, token: str) -> tuple[TestClient, Asked]:
    """A client of the application over these services, with a token unless it is "", and what it asks them for."""
    parts = offer(services, pool)
    asked = Asked(parts.operations)
    app = make_app(replace(parts, operations=cast("Any", asked)), ())
    options = {"loop_factory": Loop}
    client = TestClient(app, "http://localhost", follow_redirects=False, backend_options=options)
    client.headers.update({"Authorization": f"Bearer {token}"} if token else {})
    return client, asked


def words(page: str) -> str:
    """What the page says, without its marks."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())
