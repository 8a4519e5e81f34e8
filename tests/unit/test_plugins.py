"""Plug-ins of installed packages, deferred and absent modules, and actions by name."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from amoro_core.actions.registry import Actions
from amoro_core.actions.rewriting import Rewriting
from amoro_core.bootstrap.plugins import containers, more_actions, scheduling_policies, table_formats
from amoro_core.errors import IllegalState
from amoro_core.importing import absent, deferred
from amoro_core.scheduling.policy import POLICIES

MODULE = """
def by_size(table, now):
    return table.table_id

not_a_function = 7

class Nomad:
    def __init__(self, home):
        self.home = home

def unwilling(*home):
    raise OSError("no")

class Delta:
    name = "delta"

class Iceberg:
    name = "iceberg"

class Counting:
    name = "counting"
    names = ("count",)

class Heavier:
    name = "heavier"
    names = ("heavier", "full")
"""
ENTRY_POINTS = """
[amoro.scheduling_policies]
by-size = some_policies:by_size
broken = some_policies:missing
number = some_policies:not_a_function
quota = some_policies:by_size
[amoro.containers]
nomad = some_policies:Nomad
unwilling = some_policies:unwilling
local = some_policies:Nomad
[amoro.table_formats]
b = some_policies:Delta
again = some_policies:Delta
ours = some_policies:Iceberg
unwilling = some_policies:unwilling
[amoro.actions]
count = some_policies:Counting
twice = some_policies:Counting
heavier = some_policies:Heavier
unwilling = some_policies:unwilling
nameless = some_policies:Delta
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "some_policies-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: some-policies\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "some_policies.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_policies", raising=False)


def test_without_plug_ins_there_are_our_own_policies() -> None:
    assert scheduling_policies() == POLICIES


@pytest.mark.usefixtures("installed")
def test_a_policy_is_plugged_in_by_entry_point_and_what_is_broken_or_ours_is_left_as_it_is() -> None:
    found = scheduling_policies()
    assert list(found) == ["quota", "balanced", "by-size"]
    assert found["quota"] is POLICIES["quota"]
    assert found["by-size"].__module__ == "some_policies"


@pytest.mark.usefixtures("installed")
def test_a_container_is_plugged_in_for_a_state_directory_and_what_is_broken_or_ours_is_left_as_it_is(
    tmp_path: Path,
) -> None:
    found = containers(tmp_path)
    assert list(found) == ["external", "local", "spark", "nomad"]
    assert type(found["local"]).__module__.startswith("amoro_core.")
    assert found["nomad"].home == tmp_path


def test_without_plug_ins_there_is_iceberg_and_no_other_action() -> None:
    assert [found.name for found in table_formats()] == ["iceberg"]
    assert more_actions() == ()


@pytest.mark.usefixtures("installed")
def test_a_format_is_plugged_in_by_entry_point_once_and_iceberg_is_ours() -> None:
    found = table_formats()
    assert [format.name for format in found] == ["iceberg", "delta"]
    assert type(found[0]).__module__.startswith("amoro_core.")


@pytest.mark.usefixtures("installed")
def test_an_action_is_plugged_in_by_entry_point_unless_another_has_a_name_of_its_processes() -> None:
    assert [action.names for action in more_actions()] == [("count",)]


# Modules


PACKAGE, RARE = "package_of_this_test", "package_of_this_test.rare"


@pytest.fixture
def rare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that says in a file beside it how often its code has run."""
    package = tmp_path / PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text(f"import {RARE} as rare\n")
    file = package / "rare.py"
    file.write_text(
        '"""Rarely used."""\n'
        "import pathlib, sys, time\n"
        "with open(pathlib.Path(__file__).with_name('runs'), 'a') as runs:\n    runs.write('x')\n"
        "first = 1\n"
        "too_early = getattr(sys.modules[__name__], 'last', None)\n"
        "time.sleep(0.05)\n"
        "def last():\n    return first\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield file
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def runs(rare: Path) -> int:
    told = rare.with_name("runs")
    return len(told.read_text()) if told.exists() else 0


def test_the_code_runs_once_when_a_name_is_first_wanted(rare: Path) -> None:
    with deferred(RARE):
        package = import_module(PACKAGE)
    assert runs(rare) == 0
    assert (package.rare.last(), package.rare.too_early, package.rare.first, runs(rare)) == (1, None, 1, 1)
    assert package.rare is sys.modules[RARE]


def test_threads_that_want_it_at_once_all_get_it_whole(rare: Path) -> None:
    with deferred(RARE):
        package = import_module(PACKAGE)
    ready = threading.Barrier(8)
    got: list[int] = []

    def use() -> None:
        ready.wait()
        got.append(package.rare.last())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (got, runs(rare)) == ([1] * 8, 1)


def test_who_asks_after_a_failure_gets_the_module(rare: Path) -> None:
    with deferred(RARE):
        package = import_module(PACKAGE)
    whole = rare.read_text()
    rare.write_text("raise OSError('too many open files')\n")
    for _ in range(2):
        with pytest.raises(OSError, match="too many open files"):
            package.rare.last()
    rare.write_text(whole)
    assert package.rare.last() == 1


def test_who_looks_at_all_modules_does_not_load_it(rare: Path) -> None:
    with deferred(RARE):
        package = import_module(PACKAGE)
    assert not hasattr(package.rare, "__warningregistry__")
    assert not hasattr(package.rare, "__path__")
    assert Path(package.rare.__file__) == rare
    assert inspect.getsource(package.rare) == rare.read_text()
    assert runs(rare) == 0


def test_a_module_that_is_not_installed_stays_so() -> None:
    with deferred("no_such_module"), pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_module'$"):
        import_module("no_such_module")


def test_an_installed_module_is_absent_within_the_block_alone(rare: Path) -> None:
    with absent(PACKAGE), pytest.raises(ModuleNotFoundError, match=f"^No module named '{PACKAGE}'$") as refused:
        import_module(PACKAGE)
    assert refused.value.name == PACKAGE
    assert import_module(PACKAGE).rare.first == 1


# Actions


class Polishing(Rewriting):
    name = "care"
    names = ("polish", "wax")


def test_an_action_is_found_by_the_name_of_each_of_its_processes() -> None:
    polishing = Polishing()
    actions = Actions([polishing])
    assert actions.of("polish") is actions.of("wax") is polishing
    assert actions.of("minor") is actions.of("major") is actions.of("full")
    first, *maintenance, last = (action.names for action in actions.every)
    assert (first, last) == (("minor", "major", "full"), ("polish", "wax"))
    assert {("auto-create-tags",), ("compute-statistics",)} <= set(maintenance)


def test_a_process_of_an_action_that_is_not_installed_is_named_and_waits() -> None:
    with pytest.raises(IllegalState, match="the action 'polish' is not known"):
        Actions().of("polish")


def test_two_actions_cannot_have_processes_of_one_name() -> None:
    class Other(Rewriting):
        name = "other"

    with pytest.raises(ValueError, match="two actions have processes of the name 'minor'"):
        Actions([Other()])
    with pytest.raises(ValueError, match="two actions have the name 'optimizing'"):
        Actions([Rewriting()])
