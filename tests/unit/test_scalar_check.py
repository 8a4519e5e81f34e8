"""The check before a commit matches one by one: a mistake of the matcher behind a plan can't certify itself."""

from dataclasses import replace

import pytest

from amoro_core.actions.rewriting import inputs_of
from amoro_core.errors import CheckFailed
from amoro_core.live.columns import columns_of
from amoro_core.live.files import EqualityIndex, LiveFiles, paired
from amoro_core.model.commits import CommitContent
from amoro_core.model.files import ScannedFile, TableScan
from amoro_core.validating.check import check
from tests.unit.test_validating import E7, P8, A, B, group, head, record


def test_inputs_have_the_deletes_that_match_though_the_scan_says_that_these_dangle() -> None:
    blind = LiveFiles(columns_of([A, B]), (E7, P8), EqualityIndex(), paired())
    lying = replace(head(), scan=TableScan(200, 20, blind, (E7, P8)))
    plan = record(group(1, rewritten=[ScannedFile(A), ScannedFile(B)]))
    content = CommitContent((1,), (A, B), (), (), ())

    found = inputs_of(plan, content, lying)

    assert [[delete.path for delete in file.deletes] for file in found] == [["e7", "p8"]] * 2
    with pytest.raises(CheckFailed, match="was planned with 0 deletes, 2 apply"):
        check(plan, {file.data.path: file for file in found}, {})
