"""Actions by the names of their processes."""

from __future__ import annotations

import pytest

from amoro_core.actions.known import Actions
from amoro_core.actions.rewriting import Rewriting
from amoro_core.errors import IllegalState


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
