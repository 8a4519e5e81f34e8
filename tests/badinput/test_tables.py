"""Tables that are bad: each command ends as documented, the table stays as it was or keeps its rows."""

from __future__ import annotations

import pytest

from tests.acceptance.processes import Installation, Process
from tests.badinput.broken import check
from tests.badinput.chance import chance, numbers
from tests.badinput.conftest import Call
from tests.badinput.metadata import break_metadata
from tests.badinput.oracle import MARKS
from tests.badinput.properties import break_properties

pytestmark = MARKS


@pytest.mark.parametrize("number", numbers("properties"))
def test_bad_properties_do_no_harm(installed: Installation, coordinator: Process, call: Call, number: int) -> None:
    check(installed, call, chance("properties", number), break_properties)


@pytest.mark.parametrize("number", numbers("metadata"))
def test_bad_metadata_do_no_harm(installed: Installation, coordinator: Process, call: Call, number: int) -> None:
    check(installed, call, chance("metadata", number), break_metadata)
