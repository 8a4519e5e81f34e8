"""Receipts: figures with units, and what has to be equal."""

from amoro_core.model.processes import Equation, Figure, Receipt
from amoro_core.store.receipts import receipt_from_json, receipt_to_json

REWRITE = Receipt(12, 1, 3, 0, 0, 1200, 1000, 50, 50, 111, 110, 4000)
COUNTED = Receipt.told(
    "counted 2 files", 7, (Figure("found", 2, "files"), Figure("lost", 1, "files")), (Equation("found", "lost"),)
)


def test_a_rewrite_is_told_in_figures_whose_names_are_the_keys_of_its_json() -> None:
    figures = {figure.name: (figure.value, figure.unit) for figure in REWRITE.figures}
    assert figures["data_files_before"] == (12, "files")
    assert figures["bytes_after"] == (1000, "bytes")
    assert figures["rows_before"] == figures["rows_after"] == (50, "rows")
    assert REWRITE.equations == (Equation("rows_before", "rows_after"),)
    assert REWRITE.unequal == ()


def test_what_does_not_add_up_is_told() -> None:
    lost = Receipt(12, 1, 3, 0, 0, 1200, 1000, 50, 49, 111, 110, 4000)
    assert lost.unequal == (Equation("rows_before", "rows_after"),)
    assert COUNTED.unequal == (Equation("found", "lost"),)


def test_an_action_that_replaces_no_files_has_figures_of_its_own_alone() -> None:
    assert [(figure.name, figure.value) for figure in COUNTED.figures] == [("found", 2), ("lost", 1)]


def test_receipts_come_back_from_the_store_and_those_of_before_figures_too() -> None:
    for made in (REWRITE, COUNTED):
        assert receipt_from_json(receipt_to_json(made)) == made
    before = receipt_to_json(REWRITE).split(',"words"')[0] + "}"
    assert receipt_from_json(before) == REWRITE
