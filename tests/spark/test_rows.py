"""Multisets of rows are equal exactly when the tables hold the same values, whichever engine read them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from .tables import arrow_rows, frozen


def test_a_row_counts_as_often_as_it_is_there() -> None:
    assert arrow_rows(pa.table({"a": [1, 1, None]})) == Counter({(1,): 2, (None,): 1})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (float("nan"), -float("nan")),
        (bytearray(b"a"), b"a"),
        (datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), datetime(2024, 1, 1, tzinfo=UTC)),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1)),
        ({"a": 1, "b": [float("nan")]}, {"b": [float("nan")], "a": 1}),
    ],
)
def test_equal_values_of_different_engines_are_equal(one: Any, other: Any) -> None:
    assert frozen(one) == frozen(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.0, -0.0), ([], {}), ([1, 2], [2, 1]), ({"a": None}, {}), ({"a": 1}, None), (b"", ""), ([None], [])],
)
def test_different_values_are_different(one: Any, other: Any) -> None:
    assert frozen(one) != frozen(other)
