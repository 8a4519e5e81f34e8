"""Receipts: figures with units, and what has to be equal."""

from dataclasses import replace

from amoro_core.actions.rewriting import encoded_files
from amoro_core.model.commits import Group
from amoro_core.model.encoded_files import OTHERS, PLANNED, UNTOLD, EncodedFiles, commonest
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.processes import Equation, Figure, Receipt
from amoro_core.model.rewrite import CopyRule, InputFile, RewriteInput, RewriteOutput, TableContext
from amoro_core.protocol import codec
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
    for made in (REWRITE, COUNTED, replace(REWRITE, encoded=(EncodedFiles("its footer is encrypted", 3),))):
        assert receipt_from_json(receipt_to_json(made)) == made
    before = receipt_to_json(REWRITE).split(',"words"')[0] + "}"
    assert receipt_from_json(before) == REWRITE


RULE = CopyRule(0, 1024)


def group(output: RewriteOutput, rewritten: int, rule: CopyRule | None = RULE) -> Group:
    """A task that has rewritten so many files."""
    table = TableContext("c", "db.t", "u", 2, "s3://b", "s3://b/data", "{}", "{}", None, (), None, {}, ("s3://b",))
    files = [DataFile(f"f{n}", FileFormat.PARQUET, 0, (), 10, 100, 1) for n in range(rewritten)]
    work = RewriteInput(table, tuple(InputFile(file) for file in files), (), (), 7, 1 << 27, 1, copy=rule)
    return Group(1, work, codec.decode_output(codec.encode_output(output)))


def test_files_of_all_tasks_are_counted_by_why_they_were_encoded() -> None:
    output = RewriteOutput((), (), 0, 0, 0, 0, 0, 0, 0)
    groups = [
        group(replace(output, files_copied=2, encoded_because="b", encoded_files={"b": 2, "a": 1}), 5),
        group(replace(output, encoded_files={"a": 3}), 4),  # one that its result does not count
        group(replace(output, files_copied=1, encoded_because="a"), 3),  # of an optimizer that tells one reason
        group(output, 1),  # of one that tells none
        group(replace(output, files_copied=9), 9),
        group(output, 5, rule=None),
    ]
    assert encoded_files(groups) == (
        EncodedFiles("a", 6),
        EncodedFiles(PLANNED, 5),
        EncodedFiles("b", 2),
        EncodedFiles(UNTOLD, 1),
        EncodedFiles(OTHERS, 1),
    )
    assert encoded_files(groups[-1:]) == encoded_files(groups[4:5]) == ()


def test_the_commonest_five_reasons_are_told_each_on_one_line_of_bounded_length() -> None:
    told = commonest([*((f"reason {n}", n) for n in range(8)), (OTHERS, 1), ("a\nb " + "x" * 300, 9), ("none", -1)])
    assert told == (
        EncodedFiles("a b " + "x" * 195 + "…", 9),
        *(EncodedFiles(f"reason {n}", n) for n in (7, 6, 5, 4)),
        EncodedFiles(OTHERS, 1 + 3 + 2 + 1),
    )
