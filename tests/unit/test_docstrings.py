"""Every public name says what it is: classes, functions and methods have docstrings."""

import ast
from collections.abc import Iterator

from tests.unit.test_shape import FILES, tree

Function = ast.FunctionDef | ast.AsyncFunctionDef
#: Bases that document no method that a class of ours would override.
PLAIN = {
    "ABC",
    "BaseException",
    "Enum",
    "Exception",
    "Generic",
    "IntEnum",
    "NamedTuple",
    "Protocol",
    "StrEnum",
    "TypedDict",
}


def bases(item: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).split("[")[0].rsplit(".", 1)[-1] for base in item.bases]


CLASSES = {item.name: item for path in FILES for item in ast.walk(tree(path)) if isinstance(item, ast.ClassDef)}


def documented(item: ast.ClassDef) -> set[str]:
    return {part.name for part in item.body if isinstance(part, Function) and ast.get_docstring(part)}


#: Methods of contracts, which say what is promised; who fulfils one need not repeat it.
PROMISED = {name for item in CLASSES.values() if {"ABC", "Protocol"} & set(bases(item)) for name in documented(item)}


def inherited(item: ast.ClassDef, method: str) -> bool:
    """Whether the method is documented where it is overridden: in a contract, a class of ours, or a library."""
    if method in PROMISED:
        return True
    return any(
        (method in documented(CLASSES[base]) or inherited(CLASSES[base], method))
        if base in CLASSES
        else base not in PLAIN
        for base in bases(item)
    )


def undocumented(body: list[ast.stmt], around: ast.ClassDef | None = None) -> Iterator[str]:
    for item in body:
        if not isinstance(item, ast.ClassDef | Function) or item.name.startswith("_"):
            continue
        if not ast.get_docstring(item) and not (around and inherited(around, item.name)):
            yield f"{around.name}.{item.name}" if around else item.name
        if isinstance(item, ast.ClassDef):
            yield from undocumented(item.body, item)


def test_every_public_name_has_a_docstring() -> None:
    lacking = {str(path): list(undocumented(tree(path).body)) for path in FILES}
    assert {path: names for path, names in lacking.items() if names} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path) for path in FILES if not ast.get_docstring(tree(path))] == []


def test_a_name_without_a_docstring_is_found() -> None:
    code = "class A(B):\n '.'\n def said(self): 'x'\n def told(self): ...\n def _own(self): ...\ndef f(): ...\n"
    CLASSES["B"] = ast.ClassDef("B", [], [], [], [])
    try:
        assert list(undocumented(ast.parse(code).body)) == ["A.told", "f"]
    finally:
        del CLASSES["B"]
