"""The translation of deleted rows into positions of outputs, against lists of rows."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amoro_core.positions import PositionSet
from amoro_core.validating.rebasing import translate


@st.composite
def rewrites(draw: st.DrawFn) -> tuple[list[list[bool]], list[list[bool]], list[int]]:
    """For each row of each input, whether it was left out and whether it is hidden; and the rows of each output."""
    counts = draw(st.lists(st.integers(0, 12), max_size=5))
    out = [draw(st.lists(st.booleans(), min_size=count, max_size=count)) for count in counts]
    hidden = [draw(st.lists(st.booleans(), min_size=count, max_size=count)) for count in counts]
    live = sum(not left for rows in out for left in rows)
    cuts = sorted(draw(st.lists(st.integers(0, live), max_size=3)))
    return out, hidden, [end - start for start, end in zip([0, *cuts], [*cuts, live], strict=True)]


def _positions(flags: list[list[bool]]) -> dict[int, PositionSet]:
    return {
        at: PositionSet.of([position for position, is_set in enumerate(rows) if is_set])
        for at, rows in enumerate(flags)
        if any(rows)
    }


@given(rewrites())
@example(([[True, False, False], [False, True]], [[True, False, True], [True, True]], [1, 2]))
def test_each_hidden_row_is_found_where_it_was_written(
    given_: tuple[list[list[bool]], list[list[bool]], list[int]],
) -> None:
    left_out, hidden, output_rows = given_
    written = [
        (number, position)
        for number, rows in enumerate(left_out)
        for position, is_left_out in enumerate(rows)
        if not is_left_out
    ]
    wanted: dict[int, set[int]] = {}
    start = 0
    for output, count in enumerate(output_rows):
        for position, (number, of_input) in enumerate(written[start : start + count]):
            if hidden[number][of_input]:
                wanted.setdefault(output, set()).add(position)
        start += count
    found = translate([len(rows) for rows in left_out], _positions(left_out), _positions(hidden), output_rows)
    assert found == {output: PositionSet.of(positions) for output, positions in wanted.items()}


def test_outputs_with_other_rows_than_the_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="5 rows of the inputs are live, the outputs have 4"):
        translate([6], {0: PositionSet.of([2])}, {}, [4])
