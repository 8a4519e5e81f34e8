"""Plug-ins of installed packages, and actions by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from amoro_core.actions.registry import Actions
from amoro_core.actions.rewriting import Rewriting
from amoro_core.bootstrap.plugins import containers, more_actions, scheduling_policies, table_formats
from amoro_core.errors import IllegalState
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


def test_without_plug_ins_there_are_our_own_policies_and_iceberg() -> None:
    assert scheduling_policies() == POLICIES
    assert [found.name for found in table_formats()] == ["iceberg"]
    assert more_actions() == ()


@pytest.mark.usefixtures("installed")
def test_what_is_plugged_in_by_entry_point_is_there_and_what_is_broken_or_ours_is_left_as_it_is(tmp_path: Path) -> None:
    found = scheduling_policies()
    assert list(found) == [*POLICIES, "by-size"]
    assert found["quota"] is POLICIES["quota"]
    assert found["by-size"].__module__ == "some_policies"
    found = containers(tmp_path)
    assert list(found) == ["external", "local", "spark", "nomad"]
    assert type(found["local"]).__module__.startswith("amoro_core.")
    assert found["nomad"].home == tmp_path
    found = table_formats()
    assert [format.name for format in found] == ["iceberg", "delta"]
    assert type(found[0]).__module__.startswith("amoro_core.")
    assert [action.names for action in more_actions()] == [("count",)]


class Polishing(Rewriting):
    name = "care"
    names = ("polish", "wax")


def test_an_action_is_found_by_the_name_of_each_of_its_processes_which_no_other_has() -> None:
    polishing = Polishing()
    actions = Actions([polishing])
    assert actions.of("polish") is actions.of("wax") is polishing
    assert actions.of("minor") is actions.of("major") is actions.of("full")
    first, *maintenance, last = (action.names for action in actions.every)
    assert (first, last) == (("minor", "major", "full"), ("polish", "wax"))
    assert {("auto-create-tags",), ("compute-statistics",)} <= set(maintenance)
    with pytest.raises(IllegalState, match="the action 'polish' is not known"):
        Actions().of("polish")

    class Other(Rewriting):
        name = "other"

    with pytest.raises(ValueError, match="two actions have processes of the name 'minor'"):
        Actions([Other()])
    with pytest.raises(ValueError, match="two actions have the name 'optimizing'"):
        Actions([Rewriting()])
