"""Filters of databases and tables."""

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.model.discovery import discovery_filter
from amoro_core.model.tables import TableIdentifier


def name(*parts: str) -> TableIdentifier:
    return TableIdentifier("cat", parts[:-1], parts[-1])


@pytest.mark.parametrize(
    ("properties", "admitted"),
    [
        ({}, ["a.t1", "a.t2", "a.b.t1", "c.t1"]),
        ({"database-filter": "", "table-filter": ""}, ["a.t1", "a.t2", "a.b.t1", "c.t1"]),
        ({"database-filter": "a"}, ["a.t1", "a.t2"]),
        ({"database-filter": r"a(\..*)?"}, ["a.t1", "a.t2", "a.b.t1"]),
        ({"table-filter": "t1"}, ["a.t1", "a.b.t1", "c.t1"]),
        ({"table-filter": "t"}, []),
        ({"database-filter": "a|c", "table-filter": ".*2"}, ["a.t2"]),
    ],
)
def test_whole_names_must_match(properties: dict[str, str], admitted: list[str]) -> None:
    wanted = discovery_filter(properties)
    tables = [name("a", "t1"), name("a", "t2"), name("a", "b", "t1"), name("c", "t1")]
    assert [str(table).removeprefix("cat.") for table in tables if wanted.admits(table)] == admitted


@pytest.mark.parametrize("key", ["database-filter", "table-filter"])
def test_a_malformed_pattern_is_named_with_its_key(key: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"{key} is not a regular expression: '\(a'"):
        discovery_filter({key: "(a"})
