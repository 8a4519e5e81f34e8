from hypothesis import given
from hypothesis import strategies as st

from amoro_core.planning.packing import pack, pack_evenly, spread

WEIGHTS = st.lists(st.integers(0, 150), max_size=60)


def test_nothing_packs_into_nothing() -> None:
    assert pack([], 10) == []
    assert pack_evenly([], 10) == []


def test_equal_weights_fill_bins_in_order() -> None:
    assert pack([10] * 5, 20) == [[0, 1], [2, 3], [4]]


def test_even_bins_hold_equal_weights_without_a_small_rest() -> None:
    assert pack([10] * 20, 128) == [list(range(12)), list(range(12, 20))]
    assert pack_evenly([10] * 20, 128) == [list(range(10)), list(range(10, 20))]


def test_weight_above_the_capacity_has_its_own_bin() -> None:
    assert pack_evenly([5, 30, 5], 20) == [[0, 2], [1]]


def test_runs_are_not_evened_where_two_of_them_would_fit_together() -> None:
    weights = [9, 9, 1, 1, 9]
    assert pack_evenly(weights, 10) == [[0, 2], [1, 3], [4]]


def test_spread_makes_runs_of_nearly_equal_weight() -> None:
    assert spread([1, 1, 1, 1, 1, 1, 1], 3) == [[0, 1], [2, 3, 4], [5, 6]]


@given(weights=WEIGHTS)
def test_every_weight_is_in_one_bin_and_no_two_bins_fit_together(weights: list[int]) -> None:
    for bins in (pack(weights, 100), pack_evenly(weights, 100)):
        assert sorted(index for bin_ in bins for index in bin_) == list(range(len(weights)))
        loads = sorted(sum(weights[index] for index in bin_) for bin_ in bins)
        assert all(len(bin_) == 1 or sum(weights[index] for index in bin_) <= 100 for bin_ in bins)
        assert len(loads) < 2 or sum(loads[:2]) > 100


@given(weights=WEIGHTS, count=st.integers(1, 10))
def test_runs_keep_the_order_and_are_not_empty(weights: list[int], count: int) -> None:
    runs = spread(weights, count)
    assert [index for run in runs for index in run] == list(range(len(weights)))
    assert all(runs)
    assert len(runs) <= count
