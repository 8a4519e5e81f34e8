"""Options of maintenance: each is for some actions, and all others refuse it by name."""

from __future__ import annotations

from datetime import timedelta

import pytest

from amoro_core.actions.known import Actions
from amoro_core.errors import InvalidArgument
from amoro_core.model.maintenance import ORDER, TAKEN_BY, Options, refuse_options, turn
from amoro_core.model.processes import OPTIMIZING_ACTION

GIVEN = {
    "--older-than": Options(older_than=timedelta(days=3)),
    "--retain-last": Options(retain_last=2),
    "--snapshot": Options(snapshot_ids=(1,)),
    "--location": Options(locations=("file:///x",)),
    "--file-list": Options(file_list="x.csv"),
}


def test_every_option_is_for_some_of_our_actions() -> None:
    assert TAKEN_BY.keys() == GIVEN.keys()
    assert all(taken and taken <= set(ORDER) for taken in TAKEN_BY.values())


@pytest.mark.parametrize("action", ORDER)
@pytest.mark.parametrize("name", GIVEN)
def test_an_option_is_refused_by_all_actions_that_it_is_not_for(name: str, action: str) -> None:
    if action in TAKEN_BY[name]:
        refuse_options(action, GIVEN[name])
        return
    with pytest.raises(InvalidArgument, match=f"^{action} takes no {name}$"):
        refuse_options(action, GIVEN[name])


def test_all_that_are_refused_are_named_at_once() -> None:
    given = Options(older_than=timedelta(days=3), retain_last=2, locations=("file:///x",))
    with pytest.raises(InvalidArgument, match="clean-orphan-files takes no --retain-last") as refused:
        refuse_options("clean-orphan-files", given)
    assert refused.value.hint == "Leave --retain-last out."


def test_what_an_action_of_another_package_takes_it_says_itself() -> None:
    refuse_options("tally", GIVEN["--snapshot"])


def test_the_order_has_each_of_our_actions_and_others_come_last() -> None:
    ours = {one.name for one in Actions().every if not hasattr(one, "undoes")} - {OPTIMIZING_ACTION}
    assert set(ORDER) == ours
    assert sorted(["tally", *reversed(ORDER)], key=turn) == [*ORDER, "tally"]
