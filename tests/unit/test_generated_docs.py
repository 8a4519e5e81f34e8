"""Pages made from the code are those that the code makes now, and every error can be looked up."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from amoro_core import errors
from amoro_core.errors import AmoroError

DOCS = Path(__file__).parents[2] / "docs"


def _generator() -> Any:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()


@pytest.mark.parametrize("name", GENERATOR.PAGES)
def test_a_page_is_the_one_that_the_code_makes(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == GENERATOR.PAGES[name](), "run: python docs/generate.py"


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AmoroError)]


def test_each_error_has_a_code_of_its_own_in_the_block_of_its_exit_status() -> None:
    codes = [kind.code for kind in KINDS]
    assert sorted(set(codes)) == sorted(codes)
    blocks = {1: "1", 2: "2", 3: "3", 4: "4", 5: "5", 6: "6", 7: "7", 124: "8"}
    assert [kind for kind in KINDS if not re.fullmatch(rf"AMORO-{blocks[kind.exit_status]}\d\d\d", kind.code)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_each_error_says_what_it_is_and_what_to_do(kind: type[AmoroError]) -> None:
    assert kind.__dict__.get("__doc__")
    assert kind.__dict__.get("remedy", "").endswith(".")
