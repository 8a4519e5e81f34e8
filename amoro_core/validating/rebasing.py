"""Where the rows of a task's inputs lie in its outputs, and which of these rows a head hides.

A rewrite that is committed on a later head than it was planned on must hide every row that others have deleted by
position meanwhile. The outputs are the inputs' rows in their order, without those that the task left out, cut at the
outputs' numbers of rows; so the deletes are translated to positions of the outputs and committed with them.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from amoro_core.model.files import DataFile
from amoro_core.positions import NO_POSITIONS, PositionSet
from amoro_core.records import record


@record
class CarriedRows:
    """Rows of an output that others have deleted from the inputs, at least one; or all of a converted file's vector."""

    group: int  # the number of the task
    output: DataFile
    positions: PositionSet
    is_joined: bool = False  # of a converted file, whose vector is joined with that of others


def translate(
    rows: Sequence[int],
    left_out: Mapping[int, PositionSet],
    hidden: Mapping[int, PositionSet],
    output_rows: Sequence[int],
) -> dict[int, PositionSet]:
    """The positions, by the number of the output, of the hidden rows of the inputs.

    `rows`: of each input. `left_out`, `hidden`: positions by the number of the input; a hidden row that was left out is
    in no output. Outputs without a hidden row are missing. Raises ValueError when the inputs' live rows are not as many
    as the outputs'.
    """
    live = [count - len(left_out.get(at, NO_POSITIONS)) for at, count in enumerate(rows)]
    ends = np.array(list(accumulate(output_rows)), np.int64)
    if sum(live) != (int(ends[-1]) if len(ends) else 0) or min(live, default=0) < 0:
        raise ValueError(f"{sum(live)} rows of the inputs are live, the outputs have {sum(output_rows)}")
    found: dict[int, PositionSet] = {}
    for at, base in enumerate([0, *accumulate(live)][:-1]):
        gone = left_out.get(at, NO_POSITIONS)
        positions = (hidden.get(at, NO_POSITIONS) - gone).ascending()
        if not len(positions):
            continue
        among = base + positions - np.searchsorted(gone.ascending(), positions)
        outputs = np.searchsorted(ends, among, side="right")
        for output in np.unique(outputs).tolist():
            inside = among[outputs == output] - (ends[output] - output_rows[output])
            found[output] = found.get(output, NO_POSITIONS) | PositionSet.of(inside)
    return found
