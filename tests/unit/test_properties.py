"""Table properties: how values are parsed, who said them, and whether a table is enabled."""

from __future__ import annotations

import re

import pytest

from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.formats.configuration import CONFIGURATIONS, Configuration
from amoro_core.iceberg.manifest.writing import MergeSettings
from amoro_core.model.optimizing_config import (
    ENABLED_KEY,
    Enabled,
    check_defaults,
    decide_enabled,
    effective_properties,
    parse_config,
)
from amoro_core.model.properties import Property, boolean, fraction, integer, milliseconds, parse_into
from amoro_core.model.tables import Origin
from docs.meanings import PROPERTIES

#: Texts that Python alone would take for numbers or that mean nothing to anybody.
MALFORMED = ("1_000", "٣", "0x10", "ten", "1e400", "nan", "\u00e9t\u00e9", "'unclosed")


FREE = {
    "self-optimizing.group",
    "self-optimizing.filter",
    "maintenance.compute-statistics.columns",
    "data-expire.field",
    "self-optimizing.cluster.columns",
    "self-optimizing.cluster.partition-filter",
    "table-trash.file-pattern",
    "table-service.cluster.columns",
}


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda one: one.subject)
def test_a_property_takes_its_default_and_refuses_what_its_parser_does_not_take_by_key_and_value(
    configuration: Configuration,
) -> None:
    for known in configuration.properties:
        key = known.key.replace("*", "some.column")
        if known.default:
            configuration.check({key: known.default})
        refused = {text for text in MALFORMED if not _parses(known, text)}
        assert refused or known.key in FREE
        # Whether a table is enabled is read apart from the others, with what people said of the table.
        for text in refused if known.key != ENABLED_KEY else ():
            with pytest.raises(TableRefused, match=f"property {re.escape(key)} has the malformed value") as caught:
                configuration.check({key: text})
            assert (caught.value.reason, repr(text) in caught.value.message) == ("configuration", True)


def _parses(known: Property, text: str) -> bool:
    try:
        known.parse(text)
    except (ValueError, OverflowError):
        return False
    return True


def test_each_property_is_declared_once_and_documented_and_nothing_else_is() -> None:
    keys = [known.key for configuration in CONFIGURATIONS for known in configuration.properties]
    assert sorted(keys) == sorted(PROPERTIES)
    assert all(PROPERTIES.values())


def test_what_is_lacking_has_its_default_and_the_table_says_more_than_its_catalog() -> None:
    assert parse_into(
        MergeSettings, {"commit.manifest.min-count-to-merge": "7", "commit.unknown": "x"}
    ) == MergeSettings(min_count=7)
    catalog = {"table.self-optimizing.quota": "0.1", "table.owner": "ops", "uri": "http://c", "self-optimizing.x": "1"}
    assert effective_properties(catalog, {"self-optimizing.quota": "0.9"}) == {
        "self-optimizing.quota": "0.9",
        "owner": "ops",
    }
    check_defaults({"table.self-optimizing.quota": "0.3", "table.write.format.default": "x", "self-optimizing.x": "y"})
    check_defaults({"table.self-optimizing.wholly-different-and-from-elsewhere": "1"})


@pytest.mark.parametrize("text", ["1_000", "٣", "1.0", "", str(2**63), str(-(2**63) - 1)])
def test_a_whole_number_is_what_java_reads_as_a_long(text: str) -> None:
    with pytest.raises(ValueError, match="expected a whole number"):
        integer(text)


def test_parsers_take_what_java_takes() -> None:
    assert (integer(" -7 "), integer("+7"), integer(str(2**63 - 1))) == (-7, 7, 2**63 - 1)
    assert (boolean(" TRUE "), boolean("False")) == (True, False)
    assert (fraction(0.0)(".5"), fraction(0.0)("1e3"), fraction(0.0, 1.0)("1")) == (0.5, 1000.0, 1.0)
    assert milliseconds(0)(str(2**63 - 1)).days == 36525


ENABLED = "self-optimizing.enabled"
OWN = f"the table's property {ENABLED}=false"
DEFAULT = "table.self-optimizing.enabled"


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("self-optimizing.write-format", "orc", "expected parquet, the only format that is written"),
        ("self-optimizing.allow-partial-commit", "yes", "expected true or false"),
        ("self-optimizing.target-size", "9" * 5000, "expected a whole number of at most 64 bits"),
        ("self-optimizing.target-size", "0", "expected a whole number of at least 1"),
        ("self-optimizing.max-file-count", "1", "expected a whole number of at least 2"),
        ("self-optimizing.quota", "-0.1", "expected a number of at least 0.0"),
        ("self-optimizing.min-target-size-ratio", "1.01", "expected a number of at least 0.0 and at most 1.0"),
        ("self-optimizing.minor.trigger.interval", "1h", "expected a whole number"),
        ("self-optimizing.refresh-table.adaptive.max-interval-ms", "-1", "expected a whole number of at least 0"),
        ("self-optimizing.group", " ", "expected a name"),
    ],
)
def test_malformed_value_refuses_the_table_by_key_and_value(key: str, value: str, problem: str) -> None:
    with pytest.raises(TableRefused) as caught:
        parse_config({key: value})
    error = caught.value
    assert error.message == f"property {key} has the malformed value {value!r}: {problem}"
    assert (error.reason, error.code, error.exit_status) == ("configuration", "AMORO-6001", 6)
    assert error.hint == f"Fix it with ALTER TABLE … SET TBLPROPERTIES ('{key}' = '…') or remove it."


@pytest.mark.parametrize(
    ("override", "own", "default", "expected"),
    [
        (None, None, None, Enabled(False, "observed only: it was never enabled")),
        (None, None, "true", Enabled(True, "the catalog's default table.self-optimizing.enabled=true")),
        (True, None, None, Enabled(True, "amoro table enable")),
        (None, "true", None, Enabled(True, "the table's property self-optimizing.enabled=true")),
        (True, "false", "true", Enabled(False, OWN, Origin.TABLE)),
        (False, "true", "true", Enabled(False, "amoro table disable")),
    ],
)
def test_any_no_wins_over_any_yes(
    override: bool | None, own: str | None, default: str | None, expected: Enabled
) -> None:
    table = {ENABLED: own} if own is not None else {}
    catalog = {DEFAULT: default} if default is not None else {}
    assert decide_enabled(override, table, catalog) == expected


@pytest.mark.parametrize(("table", "catalog", "key"), [({ENABLED: "on"}, {}, ENABLED), ({}, {DEFAULT: "on"}, DEFAULT)])
def test_malformed_switch_refuses_the_table(table: dict[str, str], catalog: dict[str, str], key: str) -> None:
    with pytest.raises(TableRefused) as caught:
        decide_enabled(None, table, catalog)
    assert caught.value.message == f"property {key} has the malformed value 'on': expected true or false"
    assert caught.value.reason == "configuration"


@pytest.mark.parametrize(
    ("defaults", "says", "hint"),
    [
        (
            {"table.self-optimizing.enabld": "true"},
            "table.self-optimizing.enabld is not known",
            "Did you mean table.self-optimizing.enabled?",
        ),
        (
            {"table.self-optimizing.enabled": "maybe"},
            "property table.self-optimizing.enabled has the malformed value 'maybe': expected true or false",
            "Fix the catalog's default, a key under table.",
        ),
        (
            {"table.self-optimizing.quota": "much"},
            "property self-optimizing.quota has the malformed value 'much': expected a number of at least 0.0",
            "Fix the catalog's default, a key under table.",
        ),
    ],
)
def test_a_catalogs_default_that_is_wrong_is_refused(defaults: dict[str, str], says: str, hint: str) -> None:
    with pytest.raises(InvalidArgument) as wrong:
        check_defaults(defaults)
    assert (wrong.value.message, wrong.value.hint) == (says, hint)
