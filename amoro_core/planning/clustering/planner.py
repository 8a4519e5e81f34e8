"""Whether and how a table is clustered: partitions, files, groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from amoro_core.errors import TableRefused
from amoro_core.model.clustering import Layout
from amoro_core.model.files import TableScan
from amoro_core.model.plans import PartitionKey
from amoro_core.planning.clustering import auto_columns, model
from amoro_core.planning.clustering.auto_columns import Reading, core_ms, pays_back, rank, reading_of
from amoro_core.planning.clustering.grouping import REACHED, PlanContext
from amoro_core.planning.clustering.layouts import (
    Layouts,
    Resolved,
    group_ids,
    names_columns,
    newest_layout,
    resolve,
    sort_order_id,
)
from amoro_core.planning.clustering.model import (
    AUTO,
    COLUMNS_KEY,
    ClusterFacts,
    ClusteringConfig,
    ClusterPlan,
    ClusterRequest,
    ClusterVerdict,
    GroupPlan,
    PartitionDepth,
)
from amoro_core.planning.clustering.partition import Chosen, PartitionCase, Piece, choose, pieces_of
from amoro_core.planning.optimizing.partitions import PartitionFiles, partitions_of
from amoro_core.planning.optimizing.tasks import deletes_of, read_cost
from amoro_core.scan.live_files import LiveFiles


def plan_clustering(facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> ClusterVerdict:
    """The verdict on the table, by its triggers or as requested, with the plan if there is something to do.

    The same facts give the same plan, group ids and seeds included. What is known of groups changes nothing but how
    many footers are read. Raises TableRefused("configuration") for properties that the table can't follow,
    InvalidArgument for a request that it can't.
    """
    chosen_columns = facts.choice
    notes: tuple[str, ...] = ()
    by_choice = config.columns == AUTO and not request.columns
    if by_choice:
        decided = auto_columns.decide(facts)
        if decided.choice is None:
            return ClusterVerdict(False, f"nothing to do yet: {decided.reason}")
        chosen_columns, notes = decided.choice, (model.chosen(decided.choice, decided.reason),)
        facts = replace(facts, choice=chosen_columns)
    if request.shows and not names_columns(facts, config, request):
        cluster_verdict = _by_newest_group(facts, config, request)
        if cluster_verdict is not None:
            return cluster_verdict
    resolved = resolve(facts, config, request)
    told = ClusterVerdict(
        False, model.NO_SNAPSHOT, layout=resolved.layout, notes=(*notes, *resolved.notes), choice=chosen_columns
    )
    if facts.scan is None:
        return told
    partitions = partitions_of(facts.scan, facts.optimizing)
    chosen = choose([partition.key for partition in partitions], facts, config, request)
    if not partitions:
        return replace(told, reason=model.NO_FILES)
    terms = PlanContext(facts, config, request, resolved, Layouts(facts.groups, facts.learn))
    looked = _evaluations(partitions, facts.scan, chosen, terms)
    if (constant := _constant(looked, resolved, facts)) is not None:
        if by_choice:
            return replace(told, reason=f"nothing to gain: {constant}")
        raise TableRefused(
            constant,
            reason="configuration",
            hint=f"Name columns that queries filter by and that have several values, with {COLUMNS_KEY}.",
        )
    verdicts = tuple(evaluated.verdict for evaluated in looked)
    plan = _plan(looked, facts.scan, terms)
    return replace(
        told,
        is_due=plan is not None,
        reason=model.of_table(verdicts, facts.path_of),
        due_at=min((one.due_at for one in verdicts if one.due_at is not None), default=None),
        partitions=verdicts,
        plan=plan,
        learned=terms.layouts.learned,
    )


def _by_newest_group(facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> ClusterVerdict | None:
    """How well it is clustered by the layout of its newest group, where no columns are set; None: it has no group."""
    if facts.scan is None:
        return None
    layouts = Layouts(facts.groups, facts.learn)
    columns = frozenset(column.field_id for column in facts.sorting.columns if not column.problem)
    layout = newest_layout(LiveFiles.of(facts.scan.files), layouts, columns)
    if layout is None:
        return None
    partitions = partitions_of(facts.scan, facts.optimizing)
    chosen = choose([partition.key for partition in partitions], facts, config, request)
    resolved = Resolved(layout, (model.BY_NEWEST_GROUP,))
    terms = PlanContext(facts, config, request, resolved, layouts)
    looked = _evaluations(partitions, facts.scan, chosen, terms)
    told = tuple(replace(one.verdict, is_due=False, reason=model.NO_COLUMNS, due_at=None) for one in looked)
    return ClusterVerdict(
        False, model.NO_COLUMNS, layout=layout, notes=resolved.notes, partitions=told, learned=layouts.learned
    )


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """One evaluated partition, with the files that would be clustered."""

    case: PartitionCase
    verdict: PartitionDepth
    pieces: tuple[tuple[Piece, GroupPlan], ...] = ()


def _evaluations(
    partitions: Sequence[PartitionFiles], scan: TableScan, chosen: Chosen, terms: PlanContext
) -> list[_Evaluated]:
    live = LiveFiles.of(scan.files)
    names = group_ids(live.columns.paths)
    pinned = np.zeros(len(live.columns), np.bool_)
    pinned[live.ids_of(sorted(terms.facts.pinned))] = True
    reading = reading_of(terms.facts.scans, terms.facts.now.date())
    cases = {partition.key: PartitionCase(partition, names, pinned, terms) for partition in partitions}
    found = [_evaluated(cases[key], scan, terms, reading) for key in chosen.order]
    return [*found, *(_skipped(cases[key], chosen) for key in sorted(chosen.left, key=list(cases).index))]


def _skipped(case: PartitionCase, chosen: Chosen) -> _Evaluated:
    why, due_at = chosen.left[case.key]
    return _Evaluated(case, case.verdict(False, f"nothing to do: {why}", due_at, deep=case.terms.request.explain))


def _evaluated(case: PartitionCase, scan: TableScan, terms: PlanContext, reading: Reading) -> _Evaluated:
    config, request = terms.config, terms.request
    reason = model.by_request(case.unclustered_bytes, request.full)
    if not request.asked:
        if not case.has_much and not case.may_merge:
            why = model.too_little(case.unclustered_bytes, config.least_bytes(terms.target))
            return _Evaluated(case, case.verdict(False, why, deep=request.explain))
        if (until := case.quiet_until()) is not None:
            return _Evaluated(case, case.verdict(False, model.quiet(until, config.quiet), until))
        reason, due_at = case.trigger()
        if not reason and not case.may_merge:
            return _Evaluated(case, case.verdict(False, model.shallow(case.ratio, config.trigger_depth_ratio), due_at))
    pieces = pieces_of(case, with_candidates=bool(reason))
    groups = [(piece, _group(case, piece, scan, terms, reading)) for piece in pieces]
    if not groups:
        return _Evaluated(case, case.verdict(False, _why_none(case)))
    within = config.max_payback
    paying = tuple(
        one
        for one in groups
        if request.asked or not reading.has_scans or pays_back(one[1].core_ms, one[1].gain * one[1].core_ms, within)
    )
    if not paying:
        cost, spared = groups[0][1].core_ms, groups[0][1].gain * groups[0][1].core_ms
        return _Evaluated(case, case.verdict(False, model.pays_not_back(cost, spared, within)))
    because = reason or next(piece.why for piece, _ in paying)
    return _Evaluated(case, case.verdict(True, because), paying)


def _why_none(case: PartitionCase) -> str:
    if case.has_pinned and not len(case.unclustered):
        return model.RESERVED
    if not len(case.unclustered):
        return model.too_little(0, 0)
    if case.ratio > 1.0:
        return model.gains_little(case.ratio, REACHED)
    return model.NO_GROUPS


def _group(case: PartitionCase, piece: Piece, scan: TableScan, terms: PlanContext, reading: Reading) -> GroupPlan:
    rows = [case.rows[at] for at in piece.at.tolist()]
    files = tuple(sorted(rows, key=lambda file: (file.data.sequence_number, file.data.path)))
    size = sum(file.data.size_bytes for file in files)
    input_bytes = size + sum(delete.size_bytes for delete in deletes_of(files).values())
    work = core_ms(input_bytes, terms.facts.core_ms_per_mb)
    gain = piece.saved
    if reading.has_scans:
        gain = reading.spared_ms(size, piece.shares) / work
    group_id, seed = _identity(scan.snapshot_id, terms.resolved.layout, [file.data.path for file in files])
    return GroupPlan(
        key=case.key,
        files=files,
        output_count=case.outputs(piece.at),
        group_id=group_id,
        seed=seed,
        before=piece.before,
        predicted=piece.predicted,
        input_bytes=input_bytes,
        cost=read_cost(files, terms.facts.optimizing),
        core_ms=work,
        gain=gain,
    )


def _identity(snapshot_id: int, layout: Layout, paths: Sequence[str]) -> tuple[str, int]:
    """An id of a group and a seed that are the same for the same files in the same snapshot."""
    digest = blake2b(repr((snapshot_id, layout, sorted(paths))).encode("utf-8", "surrogatepass"), digest_size=14)
    return digest.hexdigest()[:12], int.from_bytes(digest.digest()[6:], "big")


def _plan(evaluateds: Sequence[_Evaluated], scan: TableScan, terms: PlanContext) -> ClusterPlan | None:
    """The groups that fit into one process, the most worthwhile first; at least one."""
    order: Mapping[PartitionKey, int] = {evaluated.verdict.key: at for at, evaluated in enumerate(evaluateds)}
    groups = sorted(
        (group for evaluated in evaluateds for _, group in evaluated.pieces),
        key=lambda group: (-rank(group.gain), order[group.key], -group.gain, group.group_id),
    )
    if not groups:
        return None
    taken: list[GroupPlan] = []
    size = cost = 0
    budget = terms.facts.budget_bytes
    for group in groups:
        if len(taken) >= terms.config.max_groups or (budget is not None and cost > budget):
            break
        if taken and size + group.input_bytes > terms.config.max_plan_bytes:
            continue
        taken.append(group)
        size, cost = size + group.input_bytes, cost + group.cost
    layout = terms.resolved.layout
    _, seed = _identity(scan.snapshot_id, layout, [group.group_id for group in taken])
    orders = terms.facts.sorting.orders
    return ClusterPlan(
        layout,
        sort_order_id(layout, orders),
        tuple(taken),
        scan.snapshot_id,
        scan.sequence_number,
        seed,
        len(groups) - len(taken),
    )


def _constant(evaluateds: Sequence[_Evaluated], resolved: Resolved, facts: ClusterFacts) -> str | None:
    """A warning that a column has one value in the whole table and orders nothing; given once all files were read."""
    cases = [evaluated.case for evaluated in evaluateds]
    files = sum(len(case.sizes) for case in cases)
    if files < 2 or not all(case.is_read for case in cases):
        return None
    for field_id in resolved.counted:
        values = {case.ranges[field_id].constant for case in cases}
        if len(values) == 1 and None not in values:
            name = facts.sorting.name_of(field_id)
            return f"column {name}, by which the table is to be clustered, has one value in all {files} files"
    return None
