"""Dates in texts: what a pattern reads, and whether its texts are ordered as the moments are."""

from __future__ import annotations

from datetime import datetime

import pytest

from amoro_core.maintaining.dates import DatePattern


@pytest.mark.parametrize(
    ("pattern", "text", "moment"),
    [
        ("yyyy-MM-dd", "2022-01-02", datetime(2022, 1, 2)),
        ("yyyy-MM-dd HH:mm:ss", "2022-01-02 03:04:05", datetime(2022, 1, 2, 3, 4, 5)),
        ("yyyyMMddHH", "2022010203", datetime(2022, 1, 2, 3)),
        ("dd.MM.yy", "02.01.22", datetime(2022, 1, 2)),
        ("yyyy-MM", "2024-02", datetime(2024, 2, 29)),  # the last day of the month, never an earlier one
        ("yyyy", "2022", datetime(2022, 12, 31)),
        ("'day '''yyyyMMdd", "day '20220102", datetime(2022, 1, 2)),
        ("'{x}'yyyyMMdd", "{x}20220102", datetime(2022, 1, 2)),
    ],
)
def test_a_text_in_the_patterns_form_is_read_as_it_is_written(pattern: str, text: str, moment: datetime) -> None:
    known = DatePattern(pattern)
    assert known.read(text) == moment
    assert known.format(moment) == text


@pytest.mark.parametrize(
    "text",
    ["", "2022-1-2", "2022-01-02 ", " 2022-01-02", "2022-01-02\n", "22-01-02", "2022-13-01", "2022-02-30", "0000-01-01",
     "+2022-01-02", "٢٠٢٢-01-02", "2022-01-02T00:00"],
)  # fmt: skip
def test_any_other_text_is_none(text: str) -> None:
    assert DatePattern("yyyy-MM-dd").read(text) is None


@pytest.mark.parametrize("pattern", ["MM-dd", "'never'", "yyyy-MM-dd yyyy"])
def test_a_pattern_that_names_no_year_or_one_twice_reads_nothing(pattern: str) -> None:
    assert DatePattern(pattern).read(DatePattern(pattern).format(datetime(2022, 1, 2))) is None


@pytest.mark.parametrize(
    ("pattern", "is_kept"),
    [
        ("yyyy-MM-dd", True),
        ("yyyyMMddHHmmss", True),
        ("'d'yyyy", True),
        ("dd-MM-yyyy", False),
        ("yy-MM-dd", False),  # of two centuries
        ("yyyy-dd", False),
        ("'never'", False),
    ],
)
def test_texts_are_ordered_as_moments_where_the_greatest_part_comes_first(pattern: str, is_kept: bool) -> None:
    assert DatePattern(pattern).keeps_order is is_kept
