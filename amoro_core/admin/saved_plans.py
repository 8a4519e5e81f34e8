"""Plans that are kept: shown again as they were, and carried out if they are still the plan."""

import hashlib
import zlib
from collections.abc import Sequence

from amoro_core.admin.messages.values import milliseconds
from amoro_core.admin.services import Call, Services
from amoro_core.documents.quantities import many
from amoro_core.errors import InvalidArgument
from amoro_core.model.saved_plans import LARGEST
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.saved_plans import KEPT_FOR

MOST_PARTITIONS = 500
_MOST_CHANGES = 10


def get_saved_plan(services: Services, request: pb.GetSavedPlanRequest, call: Call) -> pb.SavedPlan:
    """The kept plan of the table. Raises NotFound."""
    return find(services, request.table, request.plan_id)


def find(services: Services, table: str, plan_id: str) -> pb.SavedPlan:
    """The plan that is kept for that table. Raises NotFound."""
    kept = services.saved_plans.get(services.catalogs.resolve(table), plan_id)
    found = pb.SavedPlan.FromString(zlib.decompress(kept.content))
    found.plan_id = found.plan.plan_id = kept.plan_id
    found.expires_ms = milliseconds(kept.saved_at + KEPT_FOR)
    return found


def keep(services: Services, request: pb.PlanTableRequest, plan: pb.Plan, differences: Sequence[str] = ()) -> None:
    """Keep the plan that the request has made, and write its id into it.

    Raises InvalidArgument where it is too large even without its partitions.
    """
    kept = pb.SavedPlan(
        table=plan.table,
        type=request.type,
        force=request.force,
        where=request.where,
        cluster=request.cluster if request.HasField("cluster") else None,
        plan=plan,
        work_hash=_work_hash(plan),
        changes=differences,
    )
    ordered = sorted(plan.partitions, key=lambda one: not one.type)
    identifier, shown = services.catalogs.resolve(plan.table), MOST_PARTITIONS
    while len(content := _packed(kept, ordered, shown)) > LARGEST:
        if not shown:
            raise InvalidArgument("the plan is too large to be kept", hint="Shorten the condition.")
        shown = shown * 3 // 4
    plan.plan_id = services.saved_plans.keep(identifier, content).plan_id


def request_of(kept: pb.SavedPlan) -> pb.PlanTableRequest:
    """The request that has made the plan."""
    request = pb.PlanTableRequest(table=kept.table, type=kept.type, force=kept.force, where=kept.where)
    if kept.HasField("cluster"):
        request.cluster.CopyFrom(kept.cluster)
    return request


def require_bare(request: pb.OptimizeTableRequest) -> None:
    """Raises InvalidArgument where the request names a kept plan and says what to plan, too."""
    if request != pb.OptimizeTableRequest(table=request.table, plan_id=request.plan_id):
        raise InvalidArgument(
            f"the plan {request.plan_id} says type, condition and clustering itself",
            hint="Leave them out, or the plan.",
        )


def changes(before: pb.SavedPlan, now: pb.Plan) -> tuple[str, ...]:
    """How the plan of now differs from the one that was kept, in sentences; () if the same would be rewritten."""
    told, was = [], before.plan
    if was.snapshot_id != now.snapshot_id:
        told.append(f"The table's snapshot is {now.snapshot_id}, it was {was.snapshot_id}.")
    if was.type != now.type:
        told.append(f"The type is {now.type or 'none: there is nothing to do'}, it was {was.type or 'none'}.")
    if was.layout != now.layout:
        told.append(f"The layout is {now.layout or 'none'}, it was {was.layout or 'none'}.")
    if was.tasks != now.tasks:
        told.append(f"It has {many(now.tasks, 'task')}, it had {was.tasks:,}.")
    old, new = _by_partition(was), _by_partition(now)
    # Where not all that would have been rewritten was kept, nobody knows whether a further partition is new.
    is_whole = not before.more_partitions or len(old) < len(was.partitions)
    differing = [key for key in ({**old, **new} if is_whole else old) if old.get(key) != new.get(key)]
    told += [_told(key, old.get(key), new.get(key)) for key in differing[:_MOST_CHANGES]]
    if len(differing) > _MOST_CHANGES:
        told.append(f"{len(differing) - _MOST_CHANGES:,} more partitions differ.")
    if not told and before.work_hash != _work_hash(now):
        told.append(f"Partitions beyond the first {len(old):,} differ.")
    return tuple(told)


_Key = tuple[int, str]
_Work = tuple[str, int, int]  # type, data files, bytes


def _packed(kept: pb.SavedPlan, partitions: Sequence[pb.PlannedPartition], shown: int) -> bytes:
    del kept.plan.partitions[:]
    kept.plan.partitions.extend(partitions[:shown])
    kept.more_partitions = max(0, len(partitions) - shown)
    return zlib.compress(kept.SerializeToString())


def _work_hash(plan: pb.Plan) -> str:
    hashed = hashlib.sha256(repr((plan.snapshot_id, plan.type, plan.layout, plan.tasks)).encode())
    for one in sorted(_by_partition(plan).items()):
        hashed.update(repr(one).encode())
    return hashed.hexdigest()


def _by_partition(plan: pb.Plan) -> dict[_Key, _Work]:
    return {
        (one.spec_id, one.partition): (one.type, one.data_files, one.input_bytes) for one in plan.partitions if one.type
    }


def _told(key: _Key, before: _Work | None, now: _Work | None) -> str:
    name = f"Partition {key[1]}" if key[1] else "The table"
    if now is None:
        return f"{name} is not rewritten any more."
    if before is None:
        return f"{name} is rewritten, too: {now[0]}, {many(now[1], 'data file')}."
    return f"{name}: {now[0]} of {many(now[1], 'data file')}, it was {before[0]} of {before[1]:,}."
