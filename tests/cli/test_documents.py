"""What commands print for programs, and how quantities are read and written."""

import jsonschema
import pytest

from amoro_core.documents.formatting import format_bytes, format_duration, format_time, iso_time, many
from amoro_core.documents.json_documents import schemas
from amoro_core.model.properties import parse_duration, parse_memory


def test_the_schemas_of_documents_are_schemas() -> None:
    for schema in schemas().values():
        jsonschema.Draft202012Validator.check_schema(schema)


DURATIONS = {"30s": 30, "10m": 600, "365d": 31_536_000, "1h30m": 5400, "250ms": 0.25, " 1.5H ": 5400}
NO_DURATIONS = ("", "10", "s", "1x", "-1s", "1 h", "0s", "366d", "1h 5", "nan s", "9" * 400 + "s")
AMOUNTS = {"512MB": 2**29, "1GB": 2**30, "1gib": 2**30, "1.5 g": 3 * 2**29, "64k": 65536, "100": 100}
NO_AMOUNTS = ("", "MB", "0", "-1GB", "1 XB", "1e3", "0.1b", "9" * 400)


def test_durations_and_amounts_of_memory_are_read_and_nothing_else() -> None:
    assert {text: parse_duration(text).total_seconds() for text in DURATIONS} == DURATIONS
    assert {text: parse_memory(text) for text in AMOUNTS} == AMOUNTS
    for text in NO_DURATIONS:
        with pytest.raises(ValueError, match="is not a duration"):
            parse_duration(text)
    for text in NO_AMOUNTS:
        with pytest.raises(ValueError, match="is not an amount of memory"):
            parse_memory(text)


SIZES = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 10 * 1024: "10 kB", 2**20 - 1: "1.0 MB", 2**63: "8192 PB"}
TIMES = {0: "0.0 s", 14_200: "14.2 s", 59_940: "59.9 s", 60_000: "1 min 0 s", 7_800_000: "2 h 10 min"}


def test_sizes_and_durations_are_written_in_the_unit_that_suits_them() -> None:
    assert {size: format_bytes(size) for size in SIZES} == SIZES
    assert {milliseconds: format_duration(milliseconds) for milliseconds in TIMES} == TIMES


def test_counts_and_times_are_written_for_people_and_for_programs() -> None:
    assert [many(count, "file") for count in (0, 1, 2, 1054)] == ["0 files", "1 file", "2 files", "1,054 files"]
    assert format_time(1_790_000_000_123) == "2026-09-21 14:13:20Z"
    assert iso_time(1_790_000_000_123) == "2026-09-21T14:13:20.123Z"
    assert (format_time(0), iso_time(0)) == ("never", None)
