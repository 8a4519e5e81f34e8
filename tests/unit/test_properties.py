"""Properties of tables: each is declared once, parsed by one parser, told in the docs, and does something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amoro_core.errors import TableRefused
from amoro_core.formats.configurations import CONFIGURATIONS, Configuration, all_properties
from amoro_core.iceberg.merging import MergeSettings
from amoro_core.model.config import ENABLED_KEY
from amoro_core.model.properties import Property, boolean, declared, fraction, integer, milliseconds, parse_into
from tests.docs.meanings import PROPERTIES

ROOT = Path(__file__).parents[2]
#: Texts that Python alone would take for numbers or that mean nothing to anybody.
MALFORMED = ("1_000", "٣", "0x10", "ten", "1e400", "nan", "\u00e9t\u00e9", "'unclosed")


def cases() -> list[tuple[Configuration, Property]]:
    return [(configuration, known) for configuration in CONFIGURATIONS for known in configuration.properties]


@pytest.mark.parametrize(("configuration", "known"), cases(), ids=lambda item: getattr(item, "key", ""))
def test_each_property_refuses_what_its_parser_does_not_take_by_key_and_value(
    configuration: Configuration, known: Property
) -> None:
    key = known.key.replace("*", "some.column")
    refused = 0
    for text in MALFORMED:
        try:
            known.parse(text)
        except (ValueError, OverflowError):
            if known.key == ENABLED_KEY:
                refused += 1  # read apart from the others, with what people said of the table
                continue
            with pytest.raises(TableRefused, match=f"property {re.escape(key)} has the malformed value") as caught:
                configuration.check({key: text})
            assert (caught.value.reason, repr(text) in caught.value.message) == ("configuration", True)
            refused += 1
    free = (
        "self-optimizing.group",
        "self-optimizing.filter",
        "maintenance.compute-statistics.columns",
        "data-expire.field",
        "self-optimizing.cluster.columns",
        "self-optimizing.cluster.partition-filter",
        "table-trash.file-pattern",
    )
    assert refused or known.key in free


@pytest.mark.parametrize(("configuration", "known"), cases(), ids=lambda item: getattr(item, "key", ""))
def test_each_default_is_what_its_parser_makes_of_it(configuration: Configuration, known: Property) -> None:
    if known.default:
        key = known.key.replace("*", "some.column")
        known.parse(known.default)
        configuration.check({key: known.default})


def test_no_property_is_declared_twice() -> None:
    keys = [known.key for known in all_properties()]
    assert len(set(keys)) == len(keys)


def test_each_property_is_told_in_the_docs_and_nothing_else_is() -> None:
    assert {known.key for known in all_properties()} == set(PROPERTIES)
    assert all(PROPERTIES.values())


def test_a_property_without_a_parser_cannot_be_declared() -> None:
    with pytest.raises(TypeError):
        declared("some.key", "", None)


def test_what_no_property_declares_is_left_alone_and_what_is_lacking_has_its_default() -> None:
    assert parse_into(
        MergeSettings, {"commit.manifest.min-count-to-merge": "7", "commit.unknown": "x"}
    ) == MergeSettings(min_count=7)


@pytest.mark.parametrize("text", ["1_000", "٣", "1.0", "", str(2**63), str(-(2**63) - 1)])
def test_a_whole_number_is_what_java_reads_as_a_long(text: str) -> None:
    with pytest.raises(ValueError, match="expected a whole number"):
        integer(text)


def test_parsers_take_what_java_takes() -> None:
    assert (integer(" -7 "), integer("+7"), integer(str(2**63 - 1))) == (-7, 7, 2**63 - 1)
    assert (boolean(" TRUE "), boolean("False")) == (True, False)
    assert (fraction(0.0)(".5"), fraction(0.0)("1e3"), fraction(0.0, 1.0)("1")) == (0.5, 1000.0, 1.0)
    assert milliseconds(0)(str(2**63 - 1)).days == 36525
