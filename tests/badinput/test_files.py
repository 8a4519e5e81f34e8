"""Manifests, data files and delete files that are bad: each command ends as documented, no row comes or goes."""

from __future__ import annotations

import pytest

from tests.acceptance.processes import Installation, Process
from tests.badinput.broken import check
from tests.badinput.chance import chance, numbers
from tests.badinput.conftest import Call
from tests.badinput.files import break_data_file, break_files
from tests.badinput.manifests import break_manifests
from tests.badinput.oracle import MARKS

pytestmark = MARKS


@pytest.mark.parametrize("number", numbers("manifests"))
def test_bad_manifests_do_no_harm(installed: Installation, coordinator: Process, call: Call, number: int) -> None:
    check(installed, call, chance("manifests", number), break_manifests)


@pytest.mark.parametrize("number", numbers("files"))
def test_bad_files_do_no_harm(installed: Installation, coordinator: Process, call: Call, number: int) -> None:
    check(installed, call, chance("files", number), break_files)


@pytest.mark.parametrize("number", numbers("copied files"))
def test_bad_files_among_copied_ones_do_no_harm(
    installed: Installation, coordinator: Process, call: Call, number: int
) -> None:
    check(installed, call, chance("copied files", number), break_data_file, copies=True)
