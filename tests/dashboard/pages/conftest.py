"""The application over real services on a state database that was seeded, without a server, a loop or a catalog."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from starlette.testclient import TestClient

from amoro_core.dashboard.app import make_app
from amoro_core.model.secrets import Secret
from amoro_core.model.tokens import Role
from amoro_core.settings import Settings
from amoro_core.store.database import Connection
from amoro_core.web import offer
from amoro_core.wiring import Around, Services, installed
from tests.dashboard.states import STATES, seed
from tests.store.ready import open_store

ADMIN = "amo_admin"
LARGE = "10,000 tables"

Site = Callable[..., TestClient]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Makes clients of the application, whose database is in a state of `states.STATES` or filled by a function."""
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with ExitStack() as ending:
        yield lambda state="typical", settings=None: _client(tmp_path, state, settings or Settings(), ending)


@cache
def _large() -> bytes:
    """The database with 10,000 tables, which takes three seconds to fill."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "amoro.db"
        with open_store(path) as store:
            seed(store, LARGE)
        assert [one.name for one in path.parent.iterdir() if one.suffix == ".db-wal"] == []
        return path.read_bytes()


def _client(
    home: Path, state: str | Callable[[Connection], object], settings: Settings, ending: ExitStack
) -> TestClient:
    database = home / "amoro.db"
    if state == LARGE:
        database.write_bytes(_large())
    store = open_store(database)
    ending.callback(store.close)
    if state != LARGE:
        store.write(STATES[state] if isinstance(state, str) else state)
    around = Around(
        commit_due=lambda process, catalog: None,
        left_over=lambda process, catalog: None,
        explore=lambda: None,
        address=lambda: "nowhere",
        local_address=lambda: "nowhere",
    )
    tokens = {Role.ADMIN: Secret(ADMIN), Role.ENROLMENT: Secret("amo_enrolment")}
    services = Services(store, home, settings, tokens, around, installed(home, ()))
    pool = ending.enter_context(ThreadPoolExecutor(4))
    client = TestClient(make_app(offer(services, pool), ()), "http://localhost", follow_redirects=False)
    client.headers["Authorization"] = f"Bearer {ADMIN}"
    return client
