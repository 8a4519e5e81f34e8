"""What users look up: the page of errors, the words of refusals, and hints of errors."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import amoro_core
from amoro_core import errors
from amoro_core.api.client import with_hints
from amoro_core.errors import AmoroError, TableBusy, TableNotFound
from amoro_core.model.refusal_reasons import REFUSALS

DOCS = Path(__file__).parents[2] / "docs"


def test_pages_are_those_that_the_code_makes() -> None:
    for name, page in runpy.run_path(str(DOCS / "generate.py"))["PAGES"].items():
        assert (DOCS / name).read_text(encoding="utf-8") == page(), "run: python docs/generate.py"


def test_each_error_says_what_to_do_and_has_a_code_of_its_own_in_the_block_of_its_exit_status() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AmoroError)]
    blocks = {1: "1", 2: "2", 3: "3", 4: "4", 5: "5", 6: "6", 7: "7", 124: "8"}
    assert len({kind.code for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert re.fullmatch(rf"AMORO-{blocks[kind.exit_status]}\d\d\d", kind.code), kind
        assert kind.__dict__["remedy"].endswith("."), kind


def test_every_word_of_a_refusal_that_the_code_says_is_explained_and_no_other() -> None:
    sources = Path(amoro_core.__file__).parent.rglob("*.py")
    said = {word for path in sources for word in re.findall(r'\breason="([a-z-]+)"', path.read_text(encoding="utf-8"))}
    assert said == set(REFUSALS)


def test_an_error_has_its_hint_or_the_remedy_of_its_kind_and_shows_it_once() -> None:
    @with_hints
    @with_hints
    def fail(error: Exception) -> None:
        raise error

    for error, hint in (
        (TableBusy("busy", hint="Wait for it: amoro process show 0199"), "Wait for it: amoro process show 0199"),
        (TableNotFound("no"), TableNotFound.remedy),
    ):
        with pytest.raises(type(error)) as raised:
            fail(error)
        assert raised.value is error
        assert (error.hint, error.__notes__, str(error)) == (hint, [f"Hint: {hint}"], error.message)
