"""Planning around files that other plans of the table have."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from amoro_core.live.files import LiveFiles
from amoro_core.model.files import DataFile, TableScan
from amoro_core.model.paths import normalise
from amoro_core.model.plans import Evaluation
from amoro_core.planning.clustering.kept import kept_groups
from amoro_core.planning.reasons import OUTSIDE_FILTER

Selects = Callable[[DataFile], bool]


def beside(taken: Mapping[str, str], selects: Selects | None) -> Selects | None:
    """The filter of a table's files without those of other plans, by normalised path; None: all files."""
    if not taken:
        return selects
    if selects is None:
        return lambda file: normalise(file.path) not in taken
    return lambda file: normalise(file.path) not in taken and selects(file)


def told(evaluation: Evaluation, scan: TableScan | None, taken: Mapping[str, str]) -> Evaluation:
    """The evaluation, which says in its reason how many live files were left to other plans."""
    if scan is None or not taken:
        return evaluation
    left = len(LiveFiles.of(scan.files).ids_of(taken))
    if not left:
        return evaluation
    plans = "; ".join(sorted(set(taken.values())))
    files = f"{left} {'file is' if left == 1 else 'files are'}"
    if evaluation.reason == OUTSIDE_FILTER:
        return replace(evaluation, reason=f"nothing to do: {files} in the plan of {plans}")
    return replace(evaluation, reason=f"{evaluation.reason}; {files} left to {plans}")


def kept_in(scan: TableScan | None) -> frozenset[str]:
    """The groups of live files whose order rewriting leaves as it is; their ids."""
    return frozenset() if scan is None else frozenset(kept_groups(LiveFiles.of(scan.files).columns.parts, {}, None))
