"""The list of tables: pages, orders, filters."""

import re

import pytest
from starlette.testclient import TestClient

from amoro_core.model.tables import OptimizingStatus, TableIdentifier
from amoro_core.store import tables
from amoro_core.store.connection import Connection
from tests.dashboard import states
from tests.dashboard.pages.conftest import Site


def _names(page: str) -> list[str]:
    return re.findall(r'<td class="name"><a href="[^"]*">([^<]*)</a>', page)


def _followed(client: TestClient, path: str) -> list[str]:
    """The names on the page and on all that follow it."""
    names = []
    while path:
        page = client.get(path)
        assert page.status_code == 200, page.text
        names += _names(page.text)
        following = re.search(r'<a rel="next" href="([^"]*)"', page.text)
        path = following[1].replace("&amp;", "&") if following else ""
    return names


def test_tables_are_listed_fifty_on_a_page_and_each_once(site: Site) -> None:
    client = site(lambda db: states.fill(db, 120))
    first = client.get("/tables").text
    assert len(_names(first)) == 50
    assert "50 of 120 tables" in first
    names = _followed(client, "/tables")
    assert len(names) == len(set(names)) == 120
    assert names == sorted(names)


@pytest.mark.parametrize(
    "key", ["status", "health", "files", "small-files", "deletes", "size", "last-optimized", "next-due", "group"]
)
def test_each_order_lists_each_table_once_in_both_directions(site: Site, key: str) -> None:
    client = site(lambda db: states.fill(db, 70))
    up, down = _followed(client, f"/tables?sort={key}"), _followed(client, f"/tables?sort={key}&order=desc")
    assert len(set(up)) == 70
    assert down == up[::-1]


def test_a_header_sorts_and_sorts_the_other_way_the_second_time(site: Site) -> None:
    client = site(lambda db: states.fill(db, 3))
    assert '<a href="/tables?status=idle&amp;sort=health">Health' in client.get("/tables?status=idle").text
    page = client.get("/tables?sort=health").text
    assert 'aria-sort="ascending"><a href="/tables?sort=health&amp;order=desc">Health' in page
    assert 'aria-sort="descending"><a href="/tables?sort=health">' in client.get("/tables?sort=health&order=desc").text


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("text=ORDERS", ["lake.web.orders"]),
        ("namespace=web", ["lake.web.clicks", "lake.web.orders"]),
        ("status=refused", ["lake.finance.clicks"]),
        ("refused=encryption", ["lake.finance.clicks"]),
        ("enabled=no", ["lake.logs.clicks"]),
        ("health_below=80", ["lake.web.clicks"]),
        ("catalog=lake&text=clicks&health_below=101", ["lake.finance.clicks", "lake.logs.clicks", "lake.web.clicks"]),
        ("group=other", []),
    ],
)
def test_filters_leave_what_they_say(site: Site, query: str, names: list[str]) -> None:
    def fill(db: Connection) -> None:
        refused = {"status": OptimizingStatus.REFUSED, "refusal": "encryption"}
        for number, (name, fields) in enumerate(
            {
                ("finance", "clicks"): refused,
                ("logs", "clicks"): {"enabled": False},
                ("web", "clicks"): dict(zip(("summary", "health"), states.summary(6), strict=True)),
                ("web", "orders"): {},
            }.items()
        ):
            base = {"enabled": True, **dict(zip(("summary", "health"), states.summary(0), strict=True)), **fields}
            tables.add(db, states.table(number, identifier=TableIdentifier("lake", name[:1], name[1]), **base))

    def with_catalog(db: Connection) -> None:
        states.fill(db, 0)
        fill(db)

    page = site(with_catalog).get(f"/tables?{query}").text
    assert _names(page) == names
    if not names:
        assert "No known table matches" in page


def test_an_empty_list_says_where_tables_come_from(site: Site) -> None:
    assert "amoro catalog add" in site("empty").get("/tables").text


def test_the_command_that_does_the_same_has_the_filters(site: Site) -> None:
    page = site(lambda db: states.fill(db, 1)).get("/tables?catalog=lake&status=idle").text
    assert "<code>amoro table list --catalog lake --status idle</code>" in page
