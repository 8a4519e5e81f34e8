"""Requests to the REST API that its description allows, and such that it does not."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from amoro_core.model.tokens import Role
from tests.dashboard.fuzzing import fuzzed_once
from tests.model.conftest import quick_directory

NAME = "rest"
WHAT = (
    "Schemathesis in all its phases on the served description, as viewer and as admin in turn "
    "(`tests/dashboard/fuzzing.py`). A mismatch: a server error, an answer that is not described, a request that is "
    "accepted although the description does not allow it, or one without a token that is answered."
)
TARGETS = {"requests": 100_000}
SECONDS = 120.0
REPLAYS = False  # the requests are the seed's; ids in the answers, which later requests use, are not

SECONDS_PER_BATCH = 90


def run(seed: int, totals: Counter[str]) -> None:
    with quick_directory() as made:
        role = (Role.VIEWER, Role.ADMIN)[seed % 2]
        ended = fuzzed_once(Path(made), role, SECONDS_PER_BATCH, seed)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
    (generated,) = re.findall(r"(\d+) generated", ended.stdout)
    totals["requests"] += int(generated)
