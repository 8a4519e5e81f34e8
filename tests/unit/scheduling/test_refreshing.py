from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amoro_core.model.config import OptimizingConfig, parse_config
from amoro_core.scheduling.refreshing import refresh_interval

S, MS = timedelta(seconds=1), timedelta(milliseconds=1)
KEY = "self-optimizing.refresh-table.adaptive."


@pytest.mark.parametrize(
    ("quiet", "expected"),
    [
        (-5, 60),
        (0, 60),
        (59, 60),
        (60, 90),
        (149, 90),
        (150, 120),
        (270, 150),
        (3600, 300),
        (10**9, 300),
    ],
)
def test_interval_grows_by_half_a_minute_with_every_look_up_to_five_minutes(quiet: int, expected: int) -> None:
    assert refresh_interval(quiet * S, OptimizingConfig()) == expected * S


def test_table_has_its_own_longest_interval_and_step() -> None:
    config = parse_config({f"{KEY}max-interval-ms": "3600000", f"{KEY}increase-step-ms": "600000"})
    assert refresh_interval(59 * S, config) == 60 * S
    assert refresh_interval(60 * S, config) == 660 * S
    assert refresh_interval(10**6 * S, config) == 3600 * S


def test_longest_interval_below_the_base_keeps_the_base() -> None:
    assert refresh_interval(10**6 * S, parse_config({f"{KEY}max-interval-ms": "1000"})) == 60 * S


def test_longest_possible_values_are_no_problem() -> None:
    config = parse_config({f"{KEY}max-interval-ms": str(2**63 - 1), f"{KEY}increase-step-ms": str(2**63 - 1)})
    assert refresh_interval(60 * S, config) == timedelta(days=36525)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(quiet=st.integers(0, 10**6), base=st.integers(1, 1000), step=st.integers(1, 3000), longest=st.integers(0, 9000))
def test_interval_is_the_one_that_looking_again_and_again_comes_to(
    quiet: int, base: int, step: int, longest: int
) -> None:
    config = OptimizingConfig(refresh_increase_step=step * MS)
    found = refresh_interval(quiet * MS, config, base * MS, longest * MS)
    interval, most = base, max(base, longest)
    while quiet >= interval and interval < most:
        quiet -= interval
        interval += step
    assert found == min(interval, most) * MS
