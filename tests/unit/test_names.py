"""Names of tables, patterns and filters for them, texts that are shown, and secrets in them."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import structlog
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from amoro_cli.connection import CoordinatorAddress, Endpoint
from amoro_core.errors import InvalidArgument
from amoro_core.model.principals import is_pattern, parse_pattern
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier, parse_table
from amoro_core.model.text_sanitizing import Secret, cut, is_secret, is_text, masked, printable, without_secrets
from amoro_optimizer.runner import OptimizerConfig

PARTS = st.text(min_size=1, max_size=6) | st.text("`.a ", min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat.ns.t", TableIdentifier("cat", ("ns",), "t")),
        ("cat.a.b.table", TableIdentifier("cat", ("a", "b"), "table")),
        ("cat.`a.b`.t", TableIdentifier("cat", ("a.b",), "t")),
        ("`my cat`.`a b`.`t.1`", TableIdentifier("my cat", ("a b",), "t.1")),
    ],
)
def test_text_names_a_table(text: str, expected: TableIdentifier) -> None:
    assert parse_table(text) == expected


def test_two_parts_are_of_the_default_catalog() -> None:
    assert parse_table("ns.t", "cat") == TableIdentifier("cat", ("ns",), "t")
    assert parse_table("`a.b`.t", "cat") == TableIdentifier("cat", ("a.b",), "t")


@pytest.mark.parametrize("text", ["", "t", "ns.t", "cat.ns.", "cat..t", "cat.a b.t", "cat.``.t", "cat.`a`b.t"])
def test_what_names_no_table_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_table(text)
    assert caught.value.message == f"{text!r} is not the name of a table"
    assert caught.value.hint == "Write catalog.namespace.table; put a part with a dot or a space in backticks."
    assert caught.value.exit_status == 2


@given(catalog=PARTS, namespace=st.lists(PARTS, min_size=1, max_size=3), name=PARTS)
def test_shown_name_is_read_back(catalog: str, namespace: list[str], name: str) -> None:
    identifier = TableIdentifier(catalog, tuple(namespace), name)
    assert parse_table(str(identifier)) == identifier


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
        ("shop?db.orders", []),
        ("shop.db.`st*r`*", ["shop.db.`st*r`"]),
        ("shop.db.s*", ["shop.db.`st*r`"]),
        ("shop.`a.b`.*", ["shop.`a.b`.t"]),
        ("SHOP.*", []),
    ],
)
def test_a_pattern_means_the_tables_whose_whole_name_it_fits(pattern: str, names: list[str]) -> None:
    assert is_pattern(pattern)
    assert meant(pattern) == names


def test_the_only_catalog_may_be_left_out_and_names_with_wildcards_are_written_in_backticks() -> None:
    assert meant("db.*", "lab") == ["lab.db.orders"]
    assert meant("lab.*", "lab") == ["lab.db.orders"]
    for table in TABLES:
        assert not is_pattern(str(table))
        assert parse_table(str(table)) == table
    with pytest.raises(InvalidArgument, match="is not the name of a table"):
        parse_table("shop.db.orders*")


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


def name(*parts: str) -> TableIdentifier:
    return TableIdentifier("cat", parts[:-1], parts[-1])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders →✓ 客 é", "orders →✓ 客 é"),
        ("a\nb\tc\x1b[31m\x7f\x9b", r"a\nb\tc\x1b[31m\x7f\x9b"),
        ("evil\u202egnp.exe\u2066\u200f\u061c", r"evil\u202egnp.exe\u2066\u200f\u061c"),
        ("line\u2028paragraph\u2029next\x85", r"line\u2028paragraph\u2029next\x85"),
        ("\udcff", r"\udcff"),
    ],
)
def test_what_is_not_what_it_looks_like_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_text_is_cut_where_it_would_be_too_long_on_the_wire() -> None:
    assert is_text("客 \x00")
    assert not is_text(b"a\xff".decode(errors="surrogateescape"))
    assert cut("x" * 100, 100) == "x" * 100
    assert cut("x" * 101, 100) == "x" * 61 + " … (cut: 101 characters in all)"
    assert cut("é%" * 12, 108) == "é%" * 12
    assert cut("é%" * 20, 108) == "é%" * 7 + "é … (cut: 40 characters in all)"
    assert cut("\udcff", 100) == "\\udcff"


@pytest.mark.parametrize(
    "key", ["token", "s3.secret-access-key", "header.X-Tenant", "adls.connection-string", "auth", "Credential"]
)
def test_values_of_such_keys_alone_are_not_shown(key: str) -> None:
    assert is_secret(key)
    others = dict.fromkeys(("uri", "rest.authorization-url", "oauth2-server-uri", "s3.region"), "x")
    assert masked({key: "x", **others}) == {key: "***", **others}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:pw@host:1/x", "http://me:***@host:1/x"),
        ("user=u&password=p&x=1", "user=u&password=***&x=1"),
        ('{"token": "abc", "port": 1}', '{"token": "***", "port": 1}'),
        ("DefaultEndpoints;AccountKey=abc==;Suffix=x", "DefaultEndpoints;AccountKey=***;Suffix=x"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("token amo_abcdefghijklmnopqrstuvwxyz is old", "token *** is old"),
        ("the admin token is wrong", "the admin token is wrong"),
        ("task.completed attempt=1 task=0199-1", "task.completed attempt=1 task=0199-1"),
    ],
)
def test_secrets_within_texts_are_replaced_and_the_rest_stays(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_a_secret_is_told_to_whom_asks_and_else_shown_as_three_asterisks() -> None:
    held = (
        CatalogConfig("cat", (("token", "hush"),)),
        Endpoint("127.0.0.1:1", Secret("hush")),
        CoordinatorAddress(Path("/h"), token=Secret("hush")),
        OptimizerConfig("127.0.0.1:1", "default", 1, 1, Secret("hush"), 10.0, {}),
    )
    assert [value for value in held if "hush" in repr(value)] == []
    secret = Secret("amo_1")
    assert (secret.reveal(), bool(secret), bool(Secret(""))) == ("amo_1", True, False)
    assert (secret == Secret("amo_1"), secret == Secret("amo_2"), secret == "amo_1") == (True, False, False)
    assert len({secret, Secret("amo_1")}) == 1
    assert (str(secret), repr(secret), f"{secret}|{secret:>5}|{secret!r}|{secret!s}", "%s" % secret) == (  # noqa: UP031 - each way is tried
        "***",
        "Secret('***')",
        "***|  ***|Secret('***')|***",
        "***",
    )


@dataclass(frozen=True, slots=True)
class Holder:
    name: str
    token: Secret


class Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    token: Secret


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(lambda held: json.dumps({"token": held}), id="json"),
        pytest.param(lambda held: json.dumps({held: 1}), id="json, as a key"),
        pytest.param(lambda held: json.dumps({"token": held}, default=str), id="json with another"),
        pytest.param(lambda held: structlog.processors.JSONRenderer()(None, "", {"token": held}), id="a log's line"),
        pytest.param(lambda held: yaml.dump({"token": held}), id="yaml of any object"),
        pytest.param(lambda held: pickle.dumps(Holder("a", held)), id="pickle of its holder"),
        pytest.param(lambda held: repr(asdict(Holder("a", held))), id="asdict"),
        pytest.param(lambda held: Model(token=held).model_dump_json(), id="model_dump_json"),
        pytest.param(lambda held: repr(copy.deepcopy([held])) + repr(copy.copy(held)), id="copies"),
        pytest.param(lambda held: "Bearer " + held, id="joined with +"),
        pytest.param(lambda held: "{0!s} {0!r} {0:>9} {0!a}".format(held), id="format"),  # noqa: UP032 - each way is tried
        pytest.param(lambda held: repr(ValueError(held)) + str(ValueError(held)), id="an error's argument"),
        pytest.param(lambda held: bytes(held), id="bytes"),
    ],
)
def test_no_way_of_showing_or_keeping_a_value_shows_a_secret(shown: Callable[[Secret], object]) -> None:
    try:
        text = repr(shown(Secret("hush")))
    except (TypeError, ValueError, yaml.YAMLError) as error:
        text = str(error)
    assert "hush" not in text
    assert copy.deepcopy(Secret("hush")) == Secret("hush")
