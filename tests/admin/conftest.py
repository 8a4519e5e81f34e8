from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from amoro_core.bootstrap.composition import utc_now
from tests.admin.rig import Rig, services_over
from tests.store.builders import open_store


class Clock:
    """The wall clock, which tests put ahead."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return utc_now() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rig(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with open_store(tmp_path / "amoro.db") as store, ThreadPoolExecutor(1) as pool:
        services = services_over(store, tmp_path, clock=clock, address=lambda: made.address())
        made = Rig(store, tmp_path, services, pool)
        yield made
