from collections.abc import Iterator
from pathlib import Path

import pytest

from amoro_core.model.secrets import Secret
from amoro_core.model.tokens import Role
from amoro_core.settings import Settings
from amoro_core.wiring import Around, Services, installed
from tests.store.ready import open_store

ADMIN_TOKEN = "amo_admin"


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """The services over a new store, with no server, no loop and no catalog around them."""
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    store = open_store(tmp_path / "amoro.db")
    own_tokens = {Role.ADMIN: Secret(ADMIN_TOKEN), Role.ENROLMENT: Secret("amo_enrolment")}
    around = Around(
        commit_due=lambda process, catalog: None,
        left_over=lambda process, catalog: None,
        explore=lambda: None,
        address=lambda: "nowhere",
        local_address=lambda: "nowhere",
    )
    yield Services(store, tmp_path, Settings(), own_tokens, around, installed(tmp_path, ()))
    store.close()
