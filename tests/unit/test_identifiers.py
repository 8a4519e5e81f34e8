"""Names of tables as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoro_core.errors import InvalidArgument
from amoro_core.model.tables import TableIdentifier, parse_table

PARTS = st.text(min_size=1, max_size=6) | st.text("`.a ", min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat.ns.t", TableIdentifier("cat", ("ns",), "t")),
        ("cat.a.b.table", TableIdentifier("cat", ("a", "b"), "table")),
        ("cat.`a.b`.t", TableIdentifier("cat", ("a.b",), "t")),
        ("`my cat`.`a b`.`t.1`", TableIdentifier("my cat", ("a b",), "t.1")),
        ("cat.ns.таблица", TableIdentifier("cat", ("ns",), "таблица")),
        ("`cat`.`ns`.`t`", TableIdentifier("cat", ("ns",), "t")),
    ],
)
def test_text_names_a_table(text: str, expected: TableIdentifier) -> None:
    assert parse_table(text) == expected


def test_two_parts_are_of_the_default_catalog() -> None:
    assert parse_table("ns.t", "cat") == TableIdentifier("cat", ("ns",), "t")
    assert parse_table("`a.b`.t", "cat") == TableIdentifier("cat", ("a.b",), "t")


def test_three_parts_name_their_own_catalog() -> None:
    assert parse_table("other.ns.t", "cat") == TableIdentifier("other", ("ns",), "t")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t",
        "ns.t",
        ".ns.t",
        "cat.ns.",
        "cat..t",
        "cat.ns.t ",
        "cat.a b.t",
        "cat.`ns.t",
        "cat.``.t",
        "cat.`a`b.t",
        "c.n.a`b",
    ],
)
def test_what_names_no_table_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_table(text)
    assert caught.value.message == f"{text!r} is not the name of a table"
    assert caught.value.hint == "Write catalog.namespace.table; put a part with a dot or a space in backticks."
    assert caught.value.exit_status == 2


def test_one_part_is_too_few_even_with_a_default_catalog() -> None:
    with pytest.raises(InvalidArgument):
        parse_table("t", "cat")


def test_parts_that_need_them_are_shown_in_backticks() -> None:
    assert str(TableIdentifier("cat", ("a.b", "c"), "my t")) == "cat.`a.b`.c.`my t`"


def test_a_backtick_within_a_name_is_written_twice() -> None:
    named = TableIdentifier("cat", ("a`b",), "`")
    assert str(named) == "cat.`a``b`.````"
    assert parse_table(str(named)) == named


def test_catalogs_take_namespace_and_name() -> None:
    assert parse_table("cat.a.b.t").in_catalog == ("a", "b", "t")


@given(catalog=PARTS, namespace=st.lists(PARTS, min_size=1, max_size=3), name=PARTS)
def test_shown_name_is_read_back(catalog: str, namespace: list[str], name: str) -> None:
    identifier = TableIdentifier(catalog, tuple(namespace), name)
    assert parse_table(str(identifier)) == identifier
