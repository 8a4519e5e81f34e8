"""What of a plan is kept, and how the plan of now differs from it."""

import random
from collections.abc import Sequence

import pytest

from amoro_core.admin import saved_plans
from amoro_core.admin.operations import OPERATIONS
from amoro_core.admin.saved_plans import changes
from amoro_core.admin.services import Call
from amoro_core.errors import InvalidArgument
from amoro_core.model.principals import Principal, Way
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.saved_plans import LARGEST
from amoro_core.model.tokens import Role
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.store import catalogs
from amoro_core.wiring import Services

CALL = Call(Principal("me", Role.ADMIN, "", Way.GRPC))
PLAN = pb.Plan(
    table="c.n.t",
    snapshot_id=1,
    type="minor",
    tasks=2,
    partitions=[
        pb.PlannedPartition(partition="day=2", data_files=9),
        pb.PlannedPartition(partition="day=1", type="minor", data_files=3, input_bytes=10),
    ],
)


@pytest.fixture
def services(services: Services) -> Services:
    """Those of a coordinator that knows the catalog c."""
    services.catalogs._store.write(lambda db: catalogs.add(db, CatalogConfig("c", (("type", "in-memory"),))))
    return services


def _kept(services: Services, plan: pb.Plan, request: pb.PlanTableRequest | None = None) -> pb.SavedPlan:
    made = pb.Plan()
    made.CopyFrom(plan)
    saved_plans.keep(services, request or pb.PlanTableRequest(table="c.n.t"), made, ("it was else",))
    return saved_plans.get_saved_plan(services, pb.GetSavedPlanRequest(table="c.n.t", plan_id=made.plan_id), CALL)


def _changed(*partitions: pb.PlannedPartition, **fields: object) -> pb.Plan:
    made = pb.Plan()
    made.CopyFrom(PLAN)
    made.MergeFrom(pb.Plan(partitions=partitions, **fields))
    return made


def _days(numbers: Sequence[int], bytes_: int = 1) -> pb.Plan:
    days = [pb.PlannedPartition(partition=f"day={one}", type="full", input_bytes=bytes_) for one in numbers]
    return pb.Plan(table="c.n.t", snapshot_id=1, type="full", tasks=9, partitions=days)


def test_a_plan_is_kept_with_its_request_and_what_is_rewritten_comes_first(services: Services) -> None:
    request = pb.PlanTableRequest(
        table="c.n.t", type="cluster", where="day > 1", cluster=pb.ClusterOptions(columns=["a"], full=True)
    )
    kept = _kept(services, PLAN, request)
    assert saved_plans.request_of(kept) == request
    assert [one.partition for one in kept.plan.partitions] == ["day=1", "day=2"]
    assert (kept.plan_id, kept.more_partitions, list(kept.changes)) == (kept.plan.plan_id, 0, ["it was else"])
    assert not saved_plans.request_of(_kept(services, PLAN)).HasField("cluster")


def test_the_same_plan_has_no_changes_though_what_is_skipped_differs(services: Services) -> None:
    kept = _kept(services, PLAN)
    assert changes(kept, PLAN) == ()
    assert changes(kept, _changed(pb.PlannedPartition(partition="day=3"), reason="other")) == ()


def test_each_change_of_a_plan_is_told(services: Services) -> None:
    more = pb.PlannedPartition(partition="day=9", type="full", data_files=1)
    kept = _kept(services, PLAN)
    assert changes(kept, _changed(more, snapshot_id=2, type="major", tasks=3, layout="zorder(a)")) == (
        "The table's snapshot is 2, it was 1.",
        "The type is major, it was minor.",
        "The layout is zorder(a), it was none.",
        "It has 3 tasks, it had 2.",
        "Partition day=9 is rewritten, too: full, 1 data file.",
    )
    assert changes(_kept(services, _changed(more)), PLAN) == ("Partition day=9 is not rewritten any more.",)
    grown = pb.Plan(table="c.n.t", snapshot_id=1, type="minor", tasks=2)
    grown.partitions.add(partition="day=1", type="minor", data_files=4, input_bytes=10)
    assert changes(kept, grown) == ("Partition day=1: minor of 4 data files, it was minor of 3.",)


def test_many_changes_are_counted(services: Services) -> None:
    more = [pb.PlannedPartition(partition=str(number), type="full") for number in range(15)]
    assert changes(_kept(services, PLAN), _changed(*more))[-1] == "5 more partitions differ."


def test_of_a_large_plan_the_first_partitions_are_kept_and_a_change_beyond_them_is_told(services: Services) -> None:
    kept = _kept(services, _days(range(700)))
    assert (len(kept.plan.partitions), kept.more_partitions) == (500, 200)
    assert changes(kept, _days(range(700))) == ()
    beyond = _days(range(699))
    beyond.partitions.add(partition="day=699", type="full", input_bytes=2)
    assert changes(kept, beyond) == ("Partitions beyond the first 500 differ.",)
    assert changes(kept, _days(range(1, 701))) == ("Partition day=0 is not rewritten any more.",)


def test_a_plan_of_long_reasons_fits(services: Services) -> None:
    chance = random.Random(7)
    plan = _days(range(500))
    for one in plan.partitions:
        one.reason = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=2000))
    kept = _kept(services, plan)
    stored = services.catalogs._store.read(lambda db: db.select_one("SELECT length(content) AS bytes FROM saved_plan"))
    assert stored is not None
    assert stored["bytes"] <= LARGEST
    assert 100 < len(kept.plan.partitions) == 500 - kept.more_partitions


def test_who_names_a_kept_plan_says_nothing_else_about_it(services: Services) -> None:
    kept = _kept(services, PLAN)
    asked = pb.OptimizeTableRequest(table="c.n.t", plan_id=kept.plan_id, type="full")
    with pytest.raises(InvalidArgument, match="says type, condition and clustering itself"):
        OPERATIONS["OptimizeTable"].work(services, asked, CALL)


def test_a_condition_that_is_too_long_to_be_kept_is_refused(services: Services) -> None:
    letters = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=2 * LARGEST)
    with pytest.raises(InvalidArgument, match="too large to be kept"):
        _kept(services, _days(range(3)), pb.PlanTableRequest(table="c.n.t", where="".join(letters)))
