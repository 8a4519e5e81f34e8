"""The commit of groups of files that were written anew in order."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import fmean

import numpy as np

from amoro_core.actions.rewriting import carried_figures, check_content, inputs_of, receipt_of, staged_with
from amoro_core.errors import CheckFailed, CommitConflict
from amoro_core.failpoints import failpoint
from amoro_core.formats.known import KnownFiles
from amoro_core.formats.port import AnyTable
from amoro_core.model.actions import Case, Change, Dropped, TaskResult
from amoro_core.model.clustered_files import group_of, layout_text
from amoro_core.model.clustering import CLUSTER, ClusterInput, ClusterOutput, Layout, Strategy
from amoro_core.model.commits import (
    PROCESS_ID,
    CommitContent,
    Group,
    LookUp,
    PlanRecord,
    SnapshotAdded,
    SortOrderAdded,
)
from amoro_core.model.processes import CommitOutcome, Figure, OptimizingProcess, Receipt
from amoro_core.model.sorting import Sorting
from amoro_core.planning.clustering.depth import depth, ranges_of
from amoro_core.protocol.cluster_codec import decode_cluster_input, decode_cluster_output
from amoro_core.records import record
from amoro_core.validating.rules import carried_over, validate

#: Keys of the summary of a snapshot that clustering has committed.
LAYOUT_KEY = "amoro.cluster-layout"
GROUPS_KEY = "amoro.cluster-groups"
BEFORE_KEY = "amoro.cluster-depths-before"
AFTER_KEY = "amoro.cluster-depths-after"
_AGAIN = "The next round plans it anew."


@record
class Kept:
    """What the process keeps of its plan beside its tasks."""

    columns: tuple[int, ...]  # field ids of the layout's keys; of a linear one only the first has depths
    registers: bool  # a sort order that says what the layout says is added where there is none
    rejects: bool  # writers that ask are refused until it ends
    carries: int | None  # the most rows of a group that are looked up because others deleted them; None: it gives way
    before: Mapping[int, Sequence[float]]  # files that a point query meets, by group and column
    predicted: Mapping[int, Sequence[float]]

    @property
    def text(self) -> str:
        """What `of` reads."""
        return json.dumps(
            {
                "columns": self.columns,
                "registers": self.registers,
                "rejects": self.rejects,
                "carries": self.carries,
                "before": dict(self.before),
                "predicted": dict(self.predicted),
            }
        )

    @classmethod
    def of(cls, process: OptimizingProcess) -> "Kept":
        """What the process keeps."""
        said = json.loads(process.detail)
        before, predicted = (
            {int(number): tuple(depths) for number, depths in said[name].items()} for name in ("before", "predicted")
        )
        return cls(tuple(said["columns"]), said["registers"], said["rejects"], said.get("carries"), before, predicted)


@record
class _Done:
    """A group that is ready, with its work and what it made."""

    number: int
    work: ClusterInput
    output: ClusterOutput


def cluster_change(table: AnyTable, case: Case, known: KnownFiles, now: datetime) -> Change | Dropped:
    """Validate, check and stage the groups that are in no commit yet.

    Where the layout's sort order is to be in the metadata and is not, that comes first, as a change of its own: the id
    that files carry then is one that is there, whatever others add meanwhile.
    """
    ready = [_done(one) for one in case.results if one.number not in _committed(case)]
    kept = Kept.of(case.process)
    record = _record(case.process, ready, kept)
    head = table.head(record.snapshot_id, record.sequence_number)
    sight = known.look(table, record, head)
    validation = validate(sight)
    if validation.conflict is not None:
        raise CommitConflict(validation.conflict, hint=_AGAIN)
    if validation.content is None:
        return Dropped(validation.dropped)
    layout, sorting = ready[0].work.layout, table.sorting()
    order_id = table.order_id_of(layout.keys) if layout.strategy is Strategy.LINEAR else 0
    are_there = all(sorting.has(key.field_id) for key in layout.keys)  # others may have dropped columns meanwhile
    if kept.registers and are_there and not order_id and not _was_refused(case):
        payload, evidence = table.stage_sort_order(layout.keys)
        words = "added a sort order, not as the default"
        return Change(payload, evidence, Receipt.told(words, head.snapshot_id))
    inputs = inputs_of(record, validation.content, head)
    _check_names(ready)
    check_content(record, validation.content, inputs, table, known)
    content = _with_order(validation.content, order_id)
    failpoint("commit.before_intent")
    committed = [one for one in ready if one.number in content.groups]
    depths = _Depths.of(kept, committed, sorting)
    carried = carried_over(sight, content)
    summary = _summary(case.process, layout, committed, depths)
    content, staged = staged_with(table, head, content, carried, case.process, summary)
    failpoint("commit.after_stage")
    files = (*(file.path for file in content.added_data), *(file.path for file in content.carried_deletes))
    receipt = receipt_of(case.process, record, content, head, staged, now)
    return Change(
        payload=staged.payload,
        evidence=SnapshotAdded(staged.snapshot_id, staged.parent_snapshot_id, staged.sequence_number, files),
        receipt=replace(
            receipt,
            disputed_deletes=len(table.disputed_deletes(inputs)),
            more=(*_figures(committed, depths), *carried_figures(carried, record)),
        ),
        groups=content.groups,
        files=files,
        metadata_files=(*staged.metadata_files, *(file.path for file in content.carried_deletes)),
        dropped=validation.dropped,
    )


def _committed(case: Case) -> frozenset[int]:
    return frozenset(
        number for attempt in case.attempts if attempt.outcome is CommitOutcome.DONE for number in attempt.groups
    )


def _was_refused(case: Case) -> bool:
    """Whether the catalog takes no sort orders: the files are committed without one."""
    return any(
        isinstance(one.evidence, SortOrderAdded) and one.outcome is CommitOutcome.REFUSED for one in case.attempts
    )


def _done(result: TaskResult) -> _Done:
    return _Done(result.number, decode_cluster_input(result.input), decode_cluster_output(result.output))


def _record(process: OptimizingProcess, ready: Sequence[_Done], kept: Kept) -> PlanRecord:
    return PlanRecord(
        process_id=process.process_id,
        table_uuid=process.table_uuid,
        format_version=process.format_version,
        snapshot_id=process.snapshot_id,
        sequence_number=process.sequence_number,
        last_column_id=process.last_column_id,
        groups=tuple(_group(one, kept) for one in ready),
    )


def _group(one: _Done, kept: Kept) -> Group:
    """Its rows stand in another order: none can be followed by its position, but each can be looked up."""
    keys = tuple(key.field_id for key in one.work.layout.keys)
    look_up = None if kept.carries is None else LookUp(keys, kept.carries)
    output = replace(one.output.rewrite, position_map=None)
    return Group(one.number, one.work.rewrite, output, is_reordered=True, look_up=look_up)


def _check_names(ready: Sequence[_Done]) -> None:
    """Raise CheckFailed for outputs that do not tell their group, or that claim an order which they were not given."""
    for one in ready:
        for file in one.output.rewrite.data_files:
            if group_of(file.path) != one.work.group_id:
                raise CheckFailed(f"task {one.number}: the name of {file.path} does not end in -g{one.work.group_id}")
            if (file.sort_order_id or 0) not in (0, one.work.sort_order_id):
                raise CheckFailed(f"task {one.number}: {file.path} claims the sort order {file.sort_order_id}")


def _with_order(content: CommitContent, order_id: int) -> CommitContent:
    """The outputs with the id of the sort order that they are in; 0: in none that the metadata has."""
    return replace(content, added_data=tuple(replace(file, sort_order_id=order_id) for file in content.added_data))


def _summary(
    process: OptimizingProcess, layout: Layout, committed: Sequence[_Done], depths: "_Depths"
) -> dict[str, str]:
    ids = [one.work.group_id for one in committed]
    return {
        "snapshot.producer": "OPTIMIZE",
        PROCESS_ID: process.process_id,
        "amoro.optimizing-type": CLUSTER,
        LAYOUT_KEY: layout_text(layout, ids[0]) if len(ids) == 1 else layout_text(layout, ""),
        GROUPS_KEY: ",".join(ids),
        BEFORE_KEY: json.dumps({str(field_id): round(value, 2) for field_id, value in depths.before.items()}),
        AFTER_KEY: json.dumps({str(field_id): round(value, 2) for field_id, value in depths.after.items()}),
    }


@record
class _Depths:
    """How many files a point query on a column meets, by field id: the mean over the groups of a commit.

    Of columns that were dropped meanwhile nothing is told.
    """

    before: Mapping[int, float]
    after: Mapping[int, float]  # as the bounds of the written files say
    names: Mapping[int, str]

    @classmethod
    def of(cls, kept: Kept, committed: Sequence[_Done], sorting: Sorting) -> "_Depths":
        depths = [kept.before[one.number] for one in committed]
        before = {
            field_id: fmean(column)
            for field_id, column in zip(kept.columns, zip(*depths, strict=True), strict=False)
            if sorting.has(field_id)
        }
        after = {field_id: fmean(_reached(one, field_id, sorting) for one in committed) for field_id in before}
        return cls(before, after, {field_id: sorting.name_of(field_id) for field_id in before})


def _reached(group: _Done, field_id: int, sorting: Sorting) -> float:
    files = group.output.rewrite.data_files
    rows = np.array([file.record_count for file in files], np.int64)
    return depth(ranges_of(files, field_id, sorting.bound_key(field_id)), rows)


def _figures(committed: Sequence[_Done], depths: _Depths) -> tuple[Figure, ...]:
    stages = [stage for one in committed for stage in one.output.stages]
    queries = [
        Figure(f"files_per_point_query_on_{depths.names[field_id]}_{when}", round(values[field_id]), "")
        for field_id in depths.before
        for when, values in (("before", depths.before), ("after", depths.after))
    ]
    return (
        *queries,
        Figure("cpu_ms", sum(stage.core_ms for stage in stages), "ms"),
        Figure("shuffle_bytes", sum(one.output.shuffle_bytes for one in committed), "bytes"),
        Figure("spill_bytes", sum(one.output.spill_bytes for one in committed), "bytes"),
        Figure("groups_committed", len(committed), "groups"),
    )
