import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import deep_replace
from mutmut.mutation.pragma_handling import IgnoredCode

from tests.mutants import operators
from tests.mutants.named import PAGE, ROOT, read_named
from tests.mutants.page import (
    LEAST,
    MEANINGS,
    Change,
    Mutant,
    Run,
    change_of,
    read_meanings,
    render,
    sample,
    share_killed,
)
from tests.mutants.parts import PARTS

NAMES: Mapping[str, Sequence[str]] = {
    "m.large": [f"l{number}" for number in range(900)],
    "m.small": [f"s{number}" for number in range(100)],
    "m.tiny": ["t0", "t1"],
}
LOST = Change("amoro_core.m.f", "return a < b", "return a <= b")


def mutants_of(body: str) -> set[str]:
    """The bodies of `def f()` that our operators make of one."""
    module = cst.parse_module("def f():\n" + "".join(f"    {line}\n" for line in body.splitlines()))
    wrapper = MetadataWrapper(module)
    nothing = IgnoredCode(no_mutate_lines=set(), ignore_node_lines=set(), ignore_pattern_lines=set())
    visitor = operators.Visitor(operators.OPERATORS, nothing)
    wrapper.visit(visitor)
    found = (deep_replace(wrapper.module, one.original_node, one.mutated_node) for one in visitor.mutations)
    texts = [one.code for one in found if isinstance(one, cst.Module)]
    for text in texts:
        ast.parse(text)
    return {"\n".join(line[4:] for line in text.splitlines()[1:]) for text in texts}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if a:\n    b = 1", {"if not (a):\n    b = 1"}),
        ("if a or b:\n    c = 1", {"if not (a or b):\n    c = 1"}),
        ("if a == b:\n    c = 1", set()),  # mutmut has the opposite itself
        ("if not a:\n    c = 1", set()),
        ("a = [b for b in c if b.d]", {"a = [b for b in c if not (b.d)]"}),
        ("a.add(b)", {"pass"}),
        ("yield a", {"pass"}),
        ("raise A(b)", {"pass"}),
        ("return a", {"return None"}),
        ("return(a)", {"return None"}),
        ("return None", set()),
        ("return", set()),
        ("a = any(b)", {"a = all(b)"}),
        ("a = max(b)", {"a = min(b)"}),
        ("'text'", set()),
        ("log.info('x', a=any(b))", set()),
    ],
)
def test_operators_make_these_mutants(body: str, expected: set[str]) -> None:
    assert mutants_of(body) == expected


def test_what_an_error_says_is_left_alone_and_that_it_is_raised_is_not() -> None:
    assert mutants_of("raise A(any(b), hint='a b')") == {"pass"}
    assert mutants_of("return f'{any(b)}'") == {"return None"}


def test_a_sample_is_the_same_for_the_same_seed_and_has_its_share_of_each_module() -> None:
    chosen = sample(NAMES, 200, 1)

    assert chosen == sample({key: list(reversed(some)) for key, some in NAMES.items()}, 200, 1)
    assert chosen != sample(NAMES, 200, 2)
    assert len(set(chosen)) == len(chosen)
    assert [sum(name.startswith(first) for name in chosen) for first in "lst"] == [180, 20, 2]


def test_a_sample_has_a_least_number_of_each_module() -> None:
    assert [sum(name.startswith(first) for name in sample(NAMES, 20, 1)) for first in "lst"] == [18, LEAST, 2]


def test_a_change_is_known_by_its_text_alone() -> None:
    first = "--- a\n+++ a\n@@ -1,3 +1,3 @@\n def f():\n-    return a < b\n+    return a <= b\n"
    moved = "--- a\n+++ a\n@@ -7,3 +7,3 @@\n x = 1\n-        return a < b\n+        return a <= b\n"

    assert change_of("amoro_core.m.f", first) == change_of("amoro_core.m.f", moved) == LOST


def test_a_change_over_several_lines_is_one_text() -> None:
    diff = "--- a\n+++ a\n@@ -1,3 +1,1 @@\n-    f(\n-        a,\n-    )\n+    pass\n"

    assert change_of("f", diff) == Change("f", "f( a, )", "pass")


def run(*statuses: str) -> Run:
    mutants = tuple(Mutant("amoro_core.m", LOST, status) for status in statuses)
    return Run(seed=1, minutes=2.4, is_again=False, made={"amoro_core.m": 40}, mutants=mutants)


def test_what_was_not_tried_counts_neither_way() -> None:
    done = run("killed", "timeout", "segfault", "survived", "not checked", "check was interrupted by user")

    assert share_killed(done.mutants) == 75.0
    assert [one.status for one in done.survivors] == ["survived"]
    assert share_killed(run("not checked").mutants) == 0.0


def test_a_mutant_that_no_test_reaches_survives() -> None:
    assert share_killed(run("killed", "no tests").mutants) == 50.0


def test_the_page_names_what_is_not_explained() -> None:
    page = render(run("killed", "survived", "no tests", "not checked"), {}, "make mutants", PARTS["commit"])

    assert (
        "Written by `make mutants`: 4 of 40 mutants drawn with seed 1, 3 tried (2 min), **1 killed (33.3 %)**, "
        "2 survived, 2 of them not explained.\n"
    ) in page
    assert "| `m` | 40 | 4 | 3 | 1 | 33 % |\n" in page
    assert "| `m.f` | `return a < b` | `return a <= b` | **not explained** |\n" in page
    assert "| `m.f` | `return a < b` | `return a <= b` | **not explained** (no test reaches it) |\n" in page


def test_the_page_says_what_is_written_down_about_a_survivor() -> None:
    known = f'where = "{LOST.where}"\nwas = "{LOST.was}"\nbecomes = "{LOST.becomes}"'
    text = f'[[survivor]]\n{known}\nmeans = """\nNot\nboth."""'

    page = render(run("survived"), read_meanings(text), "make mutants", PARTS["commit"])

    assert "0 of them not explained" in page
    assert "| `return a <= b` | Not both. |\n" in page


def test_what_is_written_down_stands_there_once_and_is_about_code_that_is_there() -> None:
    meanings = read_meanings(MEANINGS.read_text())

    assert meanings
    for change in meanings:
        parts = change.where.split(".")
        paths = (Path(__file__).parents[2].joinpath(*parts[:at]).with_suffix(".py") for at in range(len(parts), 0, -1))
        code = " ".join(next(path for path in paths if path.exists()).read_text().split())
        assert " ".join(change.was.split()) in code, f"{change.was} is gone"
    twice = MEANINGS.read_text() * 2
    with pytest.raises(ValueError, match="explained twice"):
        read_meanings(twice)


def test_each_mutant_by_name_can_be_made_and_was_killed() -> None:
    named = read_named()

    assert len({one.name for one in named}) == len(named) > 15
    for one in named:
        assert ((ROOT / one.file).read_text().count(one.was), one.was != one.becomes) == (1, True), one.name
        assert all((ROOT / test).is_file() for test in one.tests)
        assert f"| {one.name} | `{one.file}` |" in PAGE.read_text()
    assert "**survived**" not in PAGE.read_text()
