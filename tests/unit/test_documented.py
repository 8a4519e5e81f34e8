"""What users look up: errors and remedies, words of refusals, hints; and the generated stubs and statuses of errors."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import amoro_core
from amoro_core import errors
from amoro_core.api.client import with_hints
from amoro_core.documents.formatting import many
from amoro_core.errors import AmoroError, TableBusy, TableNotFound, TableRefused
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.rpc.calls import status_of

ROOT = Path(__file__).resolve().parents[2]
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AmoroError)]


def test_each_error_has_a_code_in_the_block_of_its_exit_status_a_remedy_and_a_status_of_grpc() -> None:
    blocks = {1: "1", 2: "2", 3: "3", 4: "4", 5: "5", 6: "6", 7: "7", 124: "8"}
    assert len({kind.code for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
        assert re.fullmatch(rf"AMORO-{blocks[kind.exit_status]}\d\d\d", kind.code), kind
        assert kind.__dict__["remedy"].endswith("."), kind
    for kind in KINDS:
        error = kind("no", reason="word") if issubclass(kind, TableRefused) else kind("no")
        status = status_of(error)
        assert status not in (None, grpc.StatusCode.OK), kind
        assert (status is grpc.StatusCode.INTERNAL) == (kind is AmoroError), kind


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


def test_regenerating_the_stubs_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # protoc looks for its plugins beside the interpreter.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    spec = importlib.util.spec_from_file_location("generate", ROOT / "proto" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    generate.generate(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    committed = {
        path.name: path.read_text()
        for path in (ROOT / "amoro_core" / "protocol").iterdir()
        if generate.GENERATED.search(path.name)
    }
    assert made == committed
    assert len(made) == 4 * len(list((ROOT / "proto" / "amoro" / "v1").glob("*.proto")))


#: Words of our own for what has an everyday word: files *marked for deletion*, *small row groups*.
PRIVATE = re.compile(r"\bcondemn(s|ed|ing)?\b|\bcoarse\b(?!-)|\blies deep\b|\bwithout a word\b", re.IGNORECASE)
#: A key of public JSON.
PUBLIC = "condemned already"


def test_what_users_read_has_no_private_words() -> None:
    assert [text for text in _read_by_users() if PRIVATE.search(text)] == []


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert [many(1, "file"), many(2, "more file"), many(0, "row"), many(1054, "process")] == [
        "1 file", "2 more files", "0 rows", "1,054 processes",
    ]  # fmt: skip
    product = [path for path in _sources() if path.name != "formatting.py"]
    product += (ROOT / "amoro_core/web/templates").glob("*.html")
    own = re.compile(r"""["']["'] if [^"']* == 1 else ["']e?s["']""")
    assert [path.name for path in product if own.search(path.read_text(encoding="utf-8"))] == []


def _sources() -> list[Path]:
    """The product's modules, without generated ones."""
    packages = (ROOT / name for name in ("amoro_core", "amoro_cli", "amoro_optimizer"))
    return [path for package in packages for path in package.rglob("*.py") if "_pb2" not in path.name]


def _read_by_users() -> Iterator[str]:
    """Sentences of messages, of the help of commands and operations, of pages and of the documentation."""
    for path in _sources():
        if not PRIVATE.search(source := path.read_text(encoding="utf-8")):
            continue
        tree = ast.parse(source)
        is_help = "commands" in path.parts or path.parent.name == "admin"
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and isinstance(node.body[0], ast.Expr)
            and not (is_help and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        }
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
            if isinstance(text, str) and " " in text.strip() and text != PUBLIC:
                yield text
    for path in (ROOT / "amoro_core/web/templates").glob("*.html"):
        yield re.sub(r"\{[{%].*?[%}]\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        if page.parent.name != "reference" and not page.name.startswith(("mutants", "proof")):
            yield from re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8")).split("\n\n")
