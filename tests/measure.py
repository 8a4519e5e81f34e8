"""Sizes of the project: `python -m tests.measure`, which `make check` prints; nothing fails by them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("amoro_core", "amoro_optimizer", "amoro_cli")
SMALL = 60
#: Words that no module, class or function is named by: stand-ins for nouns, and the private vocabulary that ended.
ENDED = frozenset(
    [
        "told",
        "said",
        "found",
        "known",
        "asked",
        "made",
        "held",
        "gone",
        "kept",
        "looked",
        "wished",
        "judged",
        "taken",
        "shown",
        "left",
        "sparing",
        "hearing",
        "telling",
        "saying",
        "doors",
        "apart",
        "around",
        "beside",
        "strangers",
        "clockwork",
        "sight",
    ]
)


def main() -> None:
    """Print one line for each measure."""
    product, tests = list(_files(PACKAGES)), list(_files(["tests"]))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in product}
    small = [path for path in product if path.name != "__init__.py" and _lines([path]) < SMALL]
    imported = _imports(tests, modules) & modules
    patched = re.compile(r"\b(?:monkeypatch|patch|mp)\.setattr\(|\b(?:patch|mock)\.object\(")
    patches = sum(len(patched.findall(path.read_text())) for path in tests)
    named = Counter(word for path in product for name in _names(path) for word in name.split("_") if word in ENDED)
    words = ", ".join(f"{word} {count}" for word, count in named.most_common())
    print(f"product   {_lines(product):,} lines in {len(product)} modules, {len(small)} of them below {SMALL} lines")
    print(f"tests     {_lines(tests):,} lines in {len(tests)} files")
    print(f"coupling  tests import {len(imported)} modules of the product and patch {patches} attributes")
    print(f"needs     {len(project['dependencies'])} packages at run time")
    print(f"names     {sum(named.values())} with words that ended: {words or 'none'}")


def _files(roots: Iterable[str]) -> Iterator[Path]:
    """Hand-written Python files below the folders."""
    for root in roots:
        yield from sorted(path for path in (ROOT / root).rglob("*.py") if not path.stem.endswith(("_pb2", "_pb2_grpc")))


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _imports(paths: Iterable[Path], modules: Set[str]) -> set[str]:
    """Every module that the files import, by itself or for its names; the package that it lies in does not count."""
    found: set[str] = set()
    for node in (node for path in paths for node in ast.walk(_tree(path))):
        if isinstance(node, ast.Import):
            found.update(item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = [f"{node.module}.{item.name}" for item in node.names]
            found.update(name if name in modules else node.module for name in named)
    return found


def _names(path: Path) -> Iterator[str]:
    """Of the module, its classes, functions and methods, in lower case; `not_found` is a word of its own."""
    yield path.stem
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower().replace("not_found", "missing")


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
