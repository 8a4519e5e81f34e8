"""Schemathesis finds no server error and no answer that is not described, as viewer and as admin."""

from pathlib import Path

import pytest

from amoro_core.model.tokens import Role
from tests.dashboard.fuzzing import fuzzed_once

SECONDS = 30


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
def test_nothing_that_the_description_does_not_tell(role: Role, tmp_path: Path) -> None:
    ended = fuzzed_once(tmp_path, role, SECONDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
