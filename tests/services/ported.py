"""Tests of others by name: the file and function here that proves the same, or the reason why there is none."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).parents[1]

#: By the other's name: a file below `tests` and the function in it, or a reason.
Ported = Mapping[str, tuple[str, str] | str]


def require_proofs(*lists: Ported) -> None:
    """Each function that one of the lists names is there, and each reason says something."""
    for found in (proof for one in lists for proof in one.values()):
        if isinstance(found, str):
            assert found
            continue
        file, name = found
        known = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {one.name for one in known.body if isinstance(one, ast.FunctionDef)}, f"{file}: {name}"
