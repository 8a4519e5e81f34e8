from datetime import UTC, datetime, timedelta

import pytest

from amoro_core.scheduling.quota import TaskRun, occupation, quota_limit

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("quota", "threads", "limit"),
    [
        (0.5, 8, 4),
        (0.5, 3, 2),
        (0.1, 1, 1),
        (0.07, 100, 7),
        (1.0, 8, 8),
        (1.5, 8, 1),
        (3.0, 8, 3),
        (20.0, 8, 20),
        (0.0, 8, 0),
        (0.5, 0, 0),
    ],
)
def test_quota_is_a_share_up_to_one_and_a_number_of_threads_above(quota: float, threads: int, limit: int) -> None:
    assert quota_limit(quota, threads) == limit


def test_table_that_did_not_run_occupies_nothing() -> None:
    assert occupation([], 2, NOW) == 0.0
    assert occupation([], 0, NOW) == 0.0


def test_occupation_is_the_part_of_the_limit_used_in_the_last_hour() -> None:
    finished = TaskRun(NOW - 30 * MINUTE, NOW - 15 * MINUTE)
    running = TaskRun(NOW - 15 * MINUTE)
    assert occupation([finished, running], 2, NOW) == 0.25


def test_runs_count_only_within_the_last_hour() -> None:
    assert occupation([TaskRun(NOW - 90 * MINUTE, NOW - 30 * MINUTE)], 1, NOW) == 0.5
    assert occupation([TaskRun(NOW - 90 * MINUTE, NOW - 60 * MINUTE)], 1, NOW) == 0.0
    assert occupation([TaskRun(NOW - 30 * MINUTE, NOW + 30 * MINUTE)], 1, NOW) == 0.5


def test_table_without_limit_that_ran_occupies_more_than_any_other() -> None:
    assert occupation([TaskRun(NOW - MINUTE)], 0, NOW) == float("inf")
