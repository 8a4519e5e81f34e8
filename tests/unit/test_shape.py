"""The shape of the code: files that read in one sitting, and constructors that can be read."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path.relative_to(ROOT)
    for package in ("amoro_core", "amoro_optimizer", "amoro_cli")
    for path in (ROOT / package).rglob("*.py")
    if not path.stem.endswith(("_pb2", "_pb2_grpc"))
)
LONGEST, MOST_PARAMETERS = 420, 8
NINE_OF_TEN = 250


def tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def lines(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


def test_no_file_is_long_and_nine_of_ten_are_short() -> None:
    assert {str(path): lines(path) for path in FILES if lines(path) > LONGEST} == {}
    assert sorted(map(lines, FILES))[len(FILES) * 9 // 10] <= NINE_OF_TEN


@pytest.mark.parametrize("path", FILES, ids=str)
def test_constructors_have_few_parameters(path: Path) -> None:
    for item in ast.walk(tree(path)):
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            given = item.args
            parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs][1:]
            assert len(parameters) <= MOST_PARAMETERS, f"line {item.lineno}"
