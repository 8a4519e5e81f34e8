"""Patterns for names of tables."""

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.model.patterns import is_pattern, parse_pattern
from amoro_core.model.tables import parse_table

TABLES = [
    parse_table(text)
    for text in (
        "shop.db.orders",
        "shop.db.orders_2025",
        "shop.eu.west.orders",
        "shop.db.`two words`",
        "shop.db.`st*r`",
        "shop.`a.b`.t",
        "lab.db.orders",
    )
]


def meant(pattern: str, only: str | None = None) -> list[str]:
    matches = parse_pattern(pattern).matcher(only)
    return [str(table) for table in TABLES if matches(table)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", [str(table) for table in TABLES]),
        ("shop.*", [str(table) for table in TABLES[:-1]]),
        ("*.orders", ["shop.db.orders", "shop.eu.west.orders", "lab.db.orders"]),
        ("shop.db.orders_20[0-9][0-9]", ["shop.db.orders_2025"]),
        ("shop.db.orders_202?", ["shop.db.orders_2025"]),
        ("shop?db.orders", []),
        ("shop.[!d]*.orders", ["shop.eu.west.orders"]),
        ("shop.db.`two w`*", ["shop.db.`two words`"]),
        ("shop.db.`st*r`*", ["shop.db.`st*r`"]),
        ("shop.db.s*", ["shop.db.`st*r`"]),
        ("shop.`a.b`.*", ["shop.`a.b`.t"]),
        ("shop.a.b.*", []),
        ("SHOP.*", []),
        ("db.*", []),
    ],
)
def test_a_pattern_means_the_tables_whose_whole_name_it_fits(pattern: str, names: list[str]) -> None:
    assert is_pattern(pattern)
    assert meant(pattern) == names


def test_the_only_catalog_may_be_left_out() -> None:
    assert meant("db.*", "lab") == ["lab.db.orders"]
    assert meant("lab.*", "lab") == ["lab.db.orders"]


@pytest.mark.parametrize("text", ["shop.db.orders", "db.t", "shop.db.`st*r`", "`a?`.b.`[c]`"])
def test_what_stands_in_backticks_makes_no_pattern(text: str) -> None:
    assert not is_pattern(text)


@pytest.mark.parametrize("text", ["shop. *", "shop.[", "shop.`a*", "*.[z-a]", "a b*", "shop.*`", "[]*"])
def test_a_malformed_pattern_is_wrong_usage(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a pattern for tables"):
        parse_pattern(text)


@pytest.mark.parametrize(
    ("pattern", "catalogs"),
    [("shop.*", ["shop"]), ("*", ["lab", "shop"]), ("sh?p.db.*", ["lab", "shop"]), ("`lab`.*", ["lab"]), ("no.*", [])],
)
def test_only_catalogs_that_can_be_meant_are_to_be_listed(pattern: str, catalogs: list[str]) -> None:
    assert parse_pattern(pattern).catalogs(["lab", "shop"]) == catalogs
    assert parse_pattern(pattern).catalogs(["one"]) == ["one"]


def test_names_with_wildcards_are_written_in_backticks_so_that_they_can_be_given_back() -> None:
    for table in TABLES:
        assert not is_pattern(str(table))
        assert parse_table(str(table)) == table
    with pytest.raises(InvalidArgument, match="is not the name of a table"):
        parse_table("shop.db.orders*")
