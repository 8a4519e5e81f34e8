"""The committed stubs are those of proto/, and every error has a status."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from amoro_core import errors
from amoro_core.errors import AmoroError, TableRefused
from amoro_core.rpc.calls import status_of

ROOT = Path(__file__).resolve().parents[2]


def all_errors(kind: type[AmoroError] = AmoroError) -> Iterator[type[AmoroError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from all_errors(child)


def ours() -> list[type[AmoroError]]:
    return [kind for kind in dict.fromkeys(all_errors()) if kind.__module__ == errors.__name__]  # one has two parents


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
    for kind in ours():
        error = kind("no", reason="word") if issubclass(kind, TableRefused) else kind("no")
        status = status_of(error)
        assert status not in (None, grpc.StatusCode.OK), kind
        assert (status is grpc.StatusCode.INTERNAL) == (kind is AmoroError), kind
