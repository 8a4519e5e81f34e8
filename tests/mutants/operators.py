"""What we add to mutmut's operators, and what is not worth a mutant: texts for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import libcst as cst
from mutmut.mutation import file_mutation

_SWAPPED = {"any": "all", "all": "any", "min": "max", "max": "min"}


def negated(node: cst.If | cst.CompIf | cst.While) -> Iterator[cst.CSTNode]:
    """The condition's opposite, where mutmut has no opposite of its own: of names, calls, `and` and `or`."""
    test = node.test
    if isinstance(test, cst.Comparison | cst.UnaryOperation):
        return
    whole = test if test.lpar else test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), whole))


def dropped(node: cst.Expr | cst.Raise) -> Iterator[cst.CSTNode]:
    """Nothing in place of a call, a yield or a raise that stands alone."""
    if not isinstance(node, cst.Expr) or (not isinstance(node.value, cst.BaseString) and not _is_log(node.value)):
        yield cst.Pass()


def without_value(node: cst.Return) -> Iterator[cst.CSTNode]:
    """None in place of what is returned: a rule that no longer refuses."""
    if node.value is not None and not (isinstance(node.value, cst.Name) and node.value.value == "None"):
        yield node.with_changes(value=cst.Name("None"), whitespace_after_return=cst.SimpleWhitespace(" "))


def swapped(node: cst.Call) -> Iterator[cst.CSTNode]:
    """`all` in place of `any`, `max` in place of `min`, and the other way round."""
    if isinstance(node.func, cst.Name) and (other := _SWAPPED.get(node.func.value)):
        yield node.with_changes(func=cst.Name(other))


OPERATORS = (
    (cst.If, negated),
    (cst.CompIf, negated),
    (cst.While, negated),
    (cst.Expr, dropped),
    (cst.Raise, dropped),
    (cst.Return, without_value),
    (cst.Call, swapped),
)


class Visitor(file_mutation.MutationVisitor):
    """mutmut's visitor, which leaves log lines, the words of an error and of a reason as they are."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._errors: set[cst.CSTNode] = set()

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Raise) and node.exc is not None:
            self._errors.add(node.exc)
        return node in self._errors or _is_log(node) or _is_prose(node) or super()._skip_node_and_children(node)


def _is_log(node: cst.CSTNode) -> bool:
    """Whether it is a call of the module's logger."""
    function = node.func if isinstance(node, cst.Call) else None
    owner = function.value if isinstance(function, cst.Attribute) else None
    return isinstance(owner, cst.Name) and owner.value == "log"


def _is_prose(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.SimpleString):
        return " " in node.value
    return isinstance(node, cst.FormattedString | cst.ConcatenatedString)


def install() -> None:
    """Make mutmut use ours, for this process and those that it forks."""
    file_mutation.mutation_operators.extend(OPERATORS)
    file_mutation.MutationVisitor = Visitor
