"""What users look up: errors and remedies, words of refusals, hints; and the generated stubs and statuses of errors."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import grpc
import pytest

import amoro_core
from amoro_core import errors
from amoro_core.api.client import with_hints
from amoro_core.errors import AmoroError, TableBusy, TableNotFound, TableRefused
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.rpc.calls import status_of

ROOT = Path(__file__).resolve().parents[2]
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AmoroError)]


def test_each_error_says_what_to_do_and_has_a_code_of_its_own_in_the_block_of_its_exit_status() -> None:
    blocks = {1: "1", 2: "2", 3: "3", 4: "4", 5: "5", 6: "6", 7: "7", 124: "8"}
    assert len({kind.code for kind in KINDS}) == len(KINDS)
    for kind in KINDS:
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


def test_every_error_has_a_status_that_is_not_ok_and_the_root_alone_is_internal() -> None:
    for kind in KINDS:
        error = kind("no", reason="word") if issubclass(kind, TableRefused) else kind("no")
        status = status_of(error)
        assert status not in (None, grpc.StatusCode.OK), kind
        assert (status is grpc.StatusCode.INTERNAL) == (kind is AmoroError), kind
