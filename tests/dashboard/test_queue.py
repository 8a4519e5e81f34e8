"""The queue in pages over a served coordinator: by REST and by the command line."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amoro_cli import lists
from amoro_cli.main import run
from amoro_core.dashboard.rest.routes import PREFIX
from tests.cli.fakes import FakeLauncher
from tests.dashboard.served import Served, serving
from tests.dashboard.states import long_queue
from tests.store.ready import open_store

PENDING, WAITING = 23, 13
Command = Callable[..., Any]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("queue") / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home.parent))
        patch.setenv("PYICEBERG_HOME", str(home.parent))
        with open_store(home / "amoro.db") as store:
            store.write(lambda db: long_queue(db, PENDING, WAITING))
        with serving(home) as made:
            yield made


@pytest.fixture
def command(served: Served, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """What `amoro group queue` prints as JSON."""
    monkeypatch.setenv("AMORO_ADDRESS", served.coordinator.address)
    monkeypatch.setenv("AMORO_TOKEN", served.admin)

    def ask(*words: str) -> Any:
        assert run(FakeLauncher(), ("group", "queue", *words, "-o", "json")) == 0
        return json.loads(capfd.readouterr().out)

    return ask


def places(document: Any) -> tuple[list[int], list[int]]:
    return tuple([one["place"] for one in document[key]] for key in ("pending", "waiting"))  # type: ignore[return-value]


def test_rest_links_from_page_to_page_of_both_lists(served: Served) -> None:
    path, found = f"{PREFIX}/queue?limit=10", []
    while path:
        page = served.ask(path)
        assert (page.status, page.document["order_changed"]) == (200, False)
        assert (page.document["pending_total"], page.document["waiting_total"]) == (PENDING, WAITING)
        found.append(places(page.document))
        path = page.headers.get("link", "").partition(">")[0].removeprefix("<")
        assert bool(path) == (page.document["next"] is not None)
    assert found == [
        ([*range(1, 11)], [*range(1, 11)]),
        ([*range(11, 21)], [*range(11, 14)]),
        ([*range(21, 24)], []),
    ]


def test_rest_reads_one_of_the_lists_and_names_the_nearest_for_another(served: Served) -> None:
    page = served.ask(f"{PREFIX}/queue?only=waiting&limit=5").document
    assert (places(page), page["pending_total"], page["waiting_total"]) == (([], [1, 2, 3, 4, 5]), 0, WAITING)
    after = page["next"]
    assert places(served.ask(f"{PREFIX}/queue?only=waiting&after={after}").document) == ([], [*range(6, 14)])
    for query, said in (
        (f"after={after}", "the cursor belongs to a list with other filters"),
        (f"only=pending&after={after}", "the cursor belongs to a list with other filters"),
        ("after=none", "'none' is no cursor"),
        ("only=pendin", "'pendin' is not a list of the queue"),
    ):
        refused = served.ask(f"{PREFIX}/queue?{query}")
        assert (refused.status, refused.document["code"]) == (400, "AMORO-2001")
        assert said in refused.document["detail"]
    assert "Did you mean pending?" in refused.document["hint"]


def test_the_command_lists_all_pages_as_one(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "PAGE", 5)
    every = command()
    assert places(every) == ([*range(1, 24)], [*range(1, 14)])
    assert (every["next"], every["pending_total"], every["order_changed"]) == (None, PENDING, False)
    some = command("--limit", "12")
    assert places(some) == ([*range(1, 13)], [*range(1, 13)])
    assert places(command("--after", some["next"])) == ([*range(13, 24)], [13])
    assert places(command("--only", "pending", "--limit", "6")) == ([*range(1, 7)], [])
