"""A webhook of a job that has written a table: it is looked at, also where it is new, and errors say why not."""

import threading
from datetime import timedelta

import pytest

from amoro_core.dashboard.rest.routes import PREFIX
from amoro_core.errors import TableNotFound
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table
from amoro_core.model.throttle import Throttle
from amoro_core.model.tokens import Role
from tests.dashboard.served import Served
from tests.engine import writer
from tests.engine.builders import SCHEMA, row


@pytest.fixture(scope="module")
def new_table(served: Served, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The head of lake.db.t, which nobody has told of."""
    catalog = writer.make_catalog(tmp_path_factory.mktemp("lake"), "lake")
    table = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(table, [row(1)])
    served.coordinator.catalogs.add(CatalogConfig("lake", tuple({**catalog.properties, "type": "sql"}.items())))
    head = catalog.load_table("db.t").metadata.current_snapshot_id
    catalog.close()
    assert head is not None
    return head


def changed(table: str) -> str:
    return f"{PREFIX}/tables/{table}/changed"


def test_a_new_table_that_is_told_of_is_found_and_looked_at(served: Served, new_table: int) -> None:
    tables = served.coordinator.tables
    with pytest.raises(TableNotFound):
        tables.find_known(parse_table("lake.db.t"))
    for body in ({"hint": "created"}, {}):
        answer = served.ask(changed("lake.db.t"), "POST", body=body)
        assert (answer.status, answer.document["schema"]) == (200, "amoro.table/v1")
        assert answer.document["table"] == "lake.db.t"
    for _ in range(1500):
        if tables.find_known(parse_table("lake.db.t")).snapshot_id == new_table:
            break
        threading.Event().wait(0.02)
    assert tables.find_known(parse_table("lake.db.t")).snapshot_id == new_table


@pytest.mark.parametrize(
    ("table", "status", "code"),
    [("lake.db.none", 404, "AMORO-3002"), ("lake..t", 400, "AMORO-2001")],
)
def test_a_table_that_is_none_is_named(served: Served, new_table: int, table: str, status: int, code: str) -> None:
    answer = served.ask(changed(table), "POST", body={})
    assert (answer.status, answer.document["code"]) == (status, code)
    assert table.partition(".")[0] in answer.document["detail"]


def test_who_tells_too_much_or_may_not_tell_is_told_so(
    served: Served, new_table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hearing = served.coordinator.services.hearing
    monkeypatch.setattr(hearing, "_throttle", Throttle(1, timedelta(minutes=1)))
    assert served.ask(changed("lake.db.t"), "POST", body={}).status == 200
    answer = served.ask(changed("lake.db.t"), "POST", body={})
    assert (answer.status, answer.document["code"]) == (409, "AMORO-5009")
    _, viewer = served.coordinator.tokens.create("looks", Role.VIEWER)
    answer = served.ask(changed("lake.db.t"), "POST", token=viewer, body={})
    assert (answer.status, answer.document["code"]) == (403, "AMORO-4001")
