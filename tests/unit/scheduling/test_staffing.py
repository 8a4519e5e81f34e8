import pytest

from amoro_core.model.containers import EXTERNAL, InstancesView
from amoro_core.scheduling.staffing import Member, nobody_knows, nobody_works


def kept(wanted: int = 0, failed_starts: int = 0, failure: str = "", has_given_up: bool = False) -> InstancesView:
    return InstancesView(wanted, (), failed_starts, None, failure, has_given_up)


BUSY, DRAINING, UNHEARD = Member(), Member(is_draining=True), Member(is_heard=False)


@pytest.mark.parametrize("members", [(BUSY,), (DRAINING, BUSY), (UNHEARD, BUSY)])
def test_one_optimizer_that_takes_tasks_is_enough(members: tuple[Member, ...]) -> None:
    assert nobody_works("g", EXTERNAL, members, kept()) == ""


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ((), "group 'g' has no optimizer"),
        ((DRAINING, DRAINING), "every optimizer of group 'g' is draining"),
        ((UNHEARD,), "no optimizer of group 'g' has reported since the coordinator started"),
        ((DRAINING, UNHEARD), "no optimizer of group 'g' has reported since the coordinator started"),
    ],
)
def test_a_group_whose_optimizers_take_nothing_says_why(members: tuple[Member, ...], why: str) -> None:
    assert nobody_works("g", EXTERNAL, members, kept()) == f"{why}: start one with amoro optimizer run --group g"


@pytest.mark.parametrize(
    ("view", "what_next"),
    [
        (kept(wanted=2), "container local is starting 2"),
        (kept(2, 1, "no room"), "container local is starting 2 after 1 failed start in a row (no room)"),
        (kept(), "container local keeps 0 of them; amoro group scale g 1 starts one"),
        (
            kept(2, 5, "no room", has_given_up=True),
            "container local has given up after 5 failed starts in a row (no room); "
            "amoro group scale g N makes it try again",
        ),
    ],
)
def test_a_container_that_starts_some_is_told_with_what_it_does(view: InstancesView, what_next: str) -> None:
    assert nobody_works("g", "local", (), view) == f"group 'g' has no optimizer: {what_next}"


def test_a_kind_of_work_that_only_draining_optimizers_know_waits_by_its_name() -> None:
    members = (Member(kinds=("rewrite",)), Member(is_draining=True, kinds=("list", "rewrite")))
    assert nobody_knows("g", members, ("rewrite",)) == ""
    assert nobody_knows("g", members, ("rewrite", "list", "delete")) == (
        "no optimizer of group 'g' takes work of the kind delete, list: update one of them, or start one that does "
        "with amoro optimizer run --group g"
    )
