"""Patterns of operators: they limit actions on tables, never sight."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from amoro_core.admin.calling import Operations
from amoro_core.errors import CatalogNotFound, InvalidArgument, NotAllowed
from amoro_core.model.principals import Principal, checked_pattern
from amoro_core.model.tables import TableIdentifier, parse_table
from amoro_core.model.tokens import Role
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.wiring import Services


@pytest.mark.parametrize(
    ("pattern", "within", "beyond"),
    [
        ("", "shop.db.orders", ""),
        ("shop.db.*", "shop.db.orders", "shop.db.deep.orders"),
        ("shop.db.*", "shop.db.orders", "shop.other.orders"),
        ("shop.**", "shop.db.deep.orders", "shopping.db.orders"),
        ("shop.*.orders", "shop.db.orders", "shop.db.orders2"),
        ("**.orders", "shop.a.b.orders", "shop.a.b.c"),
        ("shop.db.orders", "shop.db.orders", "shop.db.order"),
        ("shop.`a.b`.*", "shop.`a.b`.t", "shop.a.b.t"),
    ],
)
def test_an_operator_acts_on_the_tables_of_the_pattern(pattern: str, within: str, beyond: str) -> None:
    assert checked_pattern(pattern, Role.OPERATOR) == pattern
    operator = Principal("op", Role.OPERATOR, pattern)
    assert operator.may_act_on(parse_table(within))
    assert not beyond or not operator.may_act_on(parse_table(beyond))
    assert Principal("boss", Role.ADMIN, pattern).may_act_on(parse_table(beyond or within))


def test_a_pattern_is_an_operators_and_can_match_a_table() -> None:
    for role in (Role.VIEWER, Role.ADMIN, Role.ENROLMENT):
        with pytest.raises(InvalidArgument, match=f"a pattern limits what an operator acts on; the role {role} has no"):
            checked_pattern("shop.**", role)
    for text in ("*", "shop.*", "shop", "shop.db"):
        with pytest.raises(InvalidArgument, match="matches no table"):
            checked_pattern(text, Role.OPERATOR)
    with pytest.raises(InvalidArgument, match="is not a pattern for tables"):
        checked_pattern("shop.[.x", Role.OPERATOR)


@pytest.fixture
def operations(services: Services) -> Iterator[Operations]:
    with ThreadPoolExecutor(2) as pool:
        yield services.operations(pool)


def test_what_is_refused_names_the_role_that_would_do(
    operations: Operations, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services.catalogs, "resolve", lambda text: TableIdentifier("shop", ("db",), text))
    operator = Principal("op", Role.OPERATOR, "shop.other.*")

    def call(method: str, request: Any, by: Principal = operator) -> Any:
        return asyncio.run(operations.call(method, request, by))

    with pytest.raises(NotAllowed) as refused:
        call("SetTableEnabled", pb.SetTableEnabledRequest(table="t", enabled=True))
    assert refused.value.message == (
        "the token op acts on shop.other.* alone; SetTableEnabled on shop.db.t needs the role operator for that table, "
        "or admin"
    )
    with pytest.raises(CatalogNotFound):  # it was looked for: sight is not limited
        call("ListProcesses", pb.ListProcessesRequest(table="t"))
    assert call("ListGroups", pb.ListGroupsRequest()).total == 1


def test_a_token_ends_by_itself_after_what_was_asked_at_most_ten_years(services: Services) -> None:
    made, token = services.tokens.create("a", Role.OPERATOR, "shop.**", timedelta(days=90))
    assert (made.pattern, made.expires_at) == ("shop.**", made.created_at + timedelta(days=90))
    assert services.tokens.admit(token) == Principal("a", Role.OPERATOR, "shop.**")
    for lasts in (timedelta(0), timedelta(seconds=-1), timedelta(days=3651)):
        with pytest.raises(InvalidArgument, match="is not possible"):
            services.tokens.create("b", Role.VIEWER, "", lasts)
