"""Whether and how a table is clustered: which partitions, which of their files, in which groups."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, cmp_to_key
from hashlib import blake2b

import numpy as np

from amoro_core.documents.formatting import many
from amoro_core.errors import InvalidArgument, misconfigured
from amoro_core.model.clustering import BOUND_CHARACTERS, Layout, SortKey
from amoro_core.model.files import ScannedFile, TableScan
from amoro_core.model.plans import PartitionKey
from amoro_core.model.tables import SnapshotFacts
from amoro_core.planning.clustering import auto_columns, model
from amoro_core.planning.clustering.auto_columns import Reading, core_ms, mean, pays_back, rank, reading_of
from amoro_core.planning.clustering.grouping import (
    MOST_MESSAGE_BYTES,
    REACHED,
    Candidates,
    PlanContext,
    Ranges,
    depth,
    fitting,
    grouped,
    ideal,
    merging_tiers,
    message_bytes,
    ranges_of,
    units_of,
)
from amoro_core.planning.clustering.layouts import (
    METRICS_KEY,
    GroupFiles,
    GroupIds,
    Layouts,
    PartitionGroups,
    Resolved,
    clustered_at,
    group_ids,
    groups_in,
    layout_name,
    names_columns,
    newest_layout,
    resolve,
    sort_order_id,
)
from amoro_core.planning.clustering.model import (
    AUTO,
    COLUMNS_KEY,
    PARTITION_FILTER_KEY,
    PARTITIONS_KEY,
    RELAYOUT_KEY,
    ClusterFacts,
    ClusteringConfig,
    ClusterPlan,
    ClusterRequest,
    ClusterVerdict,
    ColumnDepth,
    FileChoice,
    GroupPlan,
    GroupState,
    PartitionChoice,
    PartitionDepth,
    PartitionKind,
    PartitionOrder,
    size,
)
from amoro_core.planning.optimizing.partitions import PartitionFiles, order_of, partitions_of
from amoro_core.planning.optimizing.tasks import deletes_of, read_cost
from amoro_core.scan.columns import Mask, Numbers
from amoro_core.scan.live_files import LiveFiles

_HOUR = timedelta(hours=1)
_REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Partitions in the order in which they are clustered, and why the others are not, by when that may change."""

    order: tuple[PartitionKey, ...]
    left: Mapping[PartitionKey, tuple[str, datetime | None]]


def choose(
    keys: Sequence[PartitionKey], facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest
) -> Chosen:
    """The partitions that properties and request choose.

    Raises TableRefused("configuration") for a malformed `partition-filter`, InvalidArgument for a malformed condition
    of the request.
    """
    newest = sorted(keys, key=cmp_to_key(_comparing(facts)), reverse=True)
    choice = request.partitions or config.partitions
    tests = [_choosing(choice, newest, facts, config)]
    if request.where:
        fulfils = facts.chooses(request.where)
        tests.append(lambda key: None if fulfils(key) else ("it does not fulfil the condition", None))
    waiting: dict[PartitionKey, tuple[str, datetime | None]] = {}
    for key in newest:
        why = next((reason for reason in (test(key) for test in tests) if reason is not None), None)
        if why is not None:
            waiting[key] = why
    ordered = newest if config.partition_order is PartitionOrder.NEWEST else newest[::-1]
    return Chosen(tuple(key for key in ordered if key not in waiting), waiting)


_Test = Callable[[PartitionKey], tuple[str, datetime | None] | None]


def _choosing(
    choice: PartitionChoice, newest: Sequence[PartitionKey], facts: ClusterFacts, config: ClusteringConfig
) -> _Test:
    match choice.kind:
        case PartitionKind.ALL:
            return lambda key: None
        case PartitionKind.RECENT:
            window = frozenset(newest[choice.skip : choice.skip + choice.count])
            names = f"the newest {choice.count}{f' after {choice.skip}' if choice.skip else ''}"
            return lambda key: None if key in window else (f"it is not among {names} partitions", None)
        case PartitionKind.ROLLING:
            hour = int(facts.now.timestamp()) // 3600
            return lambda key: _turn(key, hour, choice.count, facts.now)
        case PartitionKind.SELECTED:
            selects = _selection(facts, config)
            return lambda key: None if selects(key) else (f"{PARTITION_FILTER_KEY} does not select it", None)


def _turn(key: PartitionKey, hour: int, count: int, now: datetime) -> tuple[str, datetime | None] | None:
    text = repr((key.spec_id, key.partition)).encode()
    wait = (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") - hour) % count
    if wait == 0:
        return None
    begun = now.replace(minute=0, second=0, microsecond=0)
    return f"its turn of {count} hours comes in {wait}", begun + wait * _HOUR


def _selection(facts: ClusterFacts, config: ClusteringConfig) -> Callable[[PartitionKey], bool]:
    if config.partition_filter is None:
        raise misconfigured(
            f"property {PARTITIONS_KEY} has the value 'selected', and {PARTITION_FILTER_KEY} selects nothing",
            hint=f"Set {PARTITION_FILTER_KEY} to a condition on partition columns.",
        )
    try:
        return facts.chooses(config.partition_filter)
    except InvalidArgument as error:
        raise misconfigured(
            f"property {PARTITION_FILTER_KEY} has the malformed value {config.partition_filter!r}: {error.message}",
            hint=error.hint,
        ) from error


def _comparing(facts: ClusterFacts) -> Callable[[PartitionKey, PartitionKey], int]:
    """Older specs come first; partitions of one spec by their values, those that tell a time before others."""
    values: dict[PartitionKey, tuple[tuple[int, SortKey], ...]] = {}

    def order(key: PartitionKey) -> tuple[tuple[int, SortKey], ...]:
        if key not in values:
            values[key] = facts.sorting.partition_order(key)
        return values[key]

    def compare(key: PartitionKey, other: PartitionKey) -> int:
        if key.spec_id != other.spec_id:
            return -1 if key.spec_id < other.spec_id else 1
        here, there = order(key), order(other)
        if here != there:
            return -1 if here < there else 1
        return -1 if order_of(key) < order_of(other) else 1

    return compare


def commits_since(last: datetime | None, snapshots: Sequence[SnapshotFacts]) -> int:
    """How many known commits since then brought or removed rows; None: all."""
    return sum(item.operation != _REPLACE and (last is None or item.committed_at > last) for item in snapshots)


_TEXTS = ("string", "binary")
#: Characters to which writers cut bounds, at least.
_CUT_AT = 16


class PartitionCase:
    """One partition under evaluation."""

    def __init__(self, partition: PartitionFiles, group_ids: GroupIds, pinned: Mask, terms: PlanContext) -> None:
        """`group_ids` and `pinned` are of all live files of the table."""
        self.partition = partition
        self.terms = terms
        files = partition.files
        self.sizes, self.live = files.sizes, files.live_bytes
        self.numbers = files.files.columns.numbers[files.ids]
        self.paths = files.files.columns.paths_of(files.ids)
        self._pinned = pinned[files.ids]
        self._group_ids = group_ids[files.ids]
        self.key, self.has_deletes = partition.key, files.has_deletes

    @cached_property
    def groups(self) -> PartitionGroups:
        """Its groups and what is in none."""
        terms = self.terms
        return groups_in(
            self._group_ids,
            (self.sizes, self.live),
            lambda group_id, at: terms.layouts.of(group_id, lambda: self.rows[at].data),
            terms.resolved.layout,
            terms.sealing,
            relayout=terms.config.relayout,
        )

    @cached_property
    def rows(self) -> Sequence[ScannedFile]:
        """All files as rows, in the order of the columns."""
        files = self.partition.files
        return list(files.files.rows(files.ids))

    @cached_property
    def ranges(self) -> Mapping[int, Ranges]:
        """The bounds of each counted column, for all files."""
        datas = [row.data for row in self.rows]
        key = self.terms.facts.sorting.bound_key
        return {field_id: ranges_of(datas, field_id, key(field_id)) for field_id in self.terms.resolved.counted}

    @cached_property
    def unclustered(self) -> Numbers:
        """The files that are in no group and may be clustered."""
        terms, at = self.terms, self.groups.unclustered
        if terms.config.files is FileChoice.SMALL:
            at = at[self.sizes[at] <= terms.facts.optimizing.min_target_size]
        return self._selected(at[~self._pinned[at]])

    @cached_property
    def candidates(self) -> Numbers:
        """Those and the files of open groups; asked to do all, every file."""
        if self.terms.request.full:
            rows = np.arange(len(self.sizes))
            return self._selected(rows[~self._pinned])
        joined = [group_files.at for group_files in self.groups.open if self.is_free(group_files.at)]
        return np.sort(np.concatenate((self.unclustered, *joined)))

    def _selected(self, at: Numbers) -> Numbers:
        selects = self.terms.facts.selects
        if selects is None:
            return at
        return at[np.array([selects(self.rows[row].data) for row in at.tolist()], np.bool_)]

    @property
    def unclustered_bytes(self) -> int:
        """Bytes of the files that are in no group and may be clustered."""
        return int(self.sizes[self.unclustered].sum())

    @property
    def has_much(self) -> bool:
        """Whether enough bytes are unclustered for work to be due."""
        return self.unclustered_bytes >= self.terms.config.least_bytes(self.terms.target)

    @property
    def may_merge(self) -> bool:
        """Whether there are enough sealed groups of a tier to become one, wherever they lie."""
        tiers = [files.group.tier for files in self.groups.sealed]
        fanout = self.terms.config.tier_fanout
        return fanout > 1 and any(tiers.count(tier) >= fanout for tier in tiers)

    @cached_property
    def columns(self) -> tuple[ColumnDepth, ...]:
        """How deep the candidates and all files lie, by counted column."""
        return tuple(
            ColumnDepth(
                field_id,
                self.terms.facts.sorting.name_of(field_id),
                self.depth(field_id, self.candidates),
                self.ideal(field_id, self.candidates),
                depth(self.ranges[field_id], self.records),
                self._note(field_id),
            )
            for field_id in self.terms.resolved.counted
        )

    @cached_property
    def records(self) -> Numbers:
        """Rows of each file."""
        files = self.partition.files
        rows: Numbers = files.files.columns.records[files.ids]
        return rows

    def depth(self, field_id: int, at: Numbers) -> float:
        """How many files of target size a point query on the column reads of these."""
        units = units_of(self.sizes[at], self.terms.target)
        return depth(self.ranges[field_id].part(at), self.records[at], units)

    def ideal(self, field_id: int, at: Numbers) -> float:
        """How many of these a point query reads in a perfect layout, or in the best that was reached before."""
        return self._perfect(at) * self._reached[field_id]

    def _perfect(self, at: Numbers) -> float:
        files = max(1.0, float(self.live[at].sum()) / self.terms.target)
        return ideal(self.terms.resolved.layout.strategy, files, len(self.terms.resolved.counted))

    @cached_property
    def _reached(self) -> Mapping[int, float]:
        """By column how far above the ideal groups lie that were clustered: more is not to be had."""
        current = [files for files in self.groups.kept if files.group.is_current]
        total = sum(float(files.group.live_bytes) for files in current)

        def reached(field_id: int) -> float:
            weights = ((files.at, files.group.live_bytes) for files in current)
            weighted = (self.depth(field_id, at) / self._perfect(at) * live_bytes for at, live_bytes in weights)
            return max(1.0, sum(weighted) / total if total else 1.0)

        return {field_id: reached(field_id) for field_id in self.terms.resolved.counted}

    def ratio_of(self, at: Numbers) -> float:
        """The mean of depth ÷ ideal of these files over the counted columns."""
        return mean([self.depth(field_id, at) / self.ideal(field_id, at) for field_id in self.terms.resolved.counted])

    @property
    def ratio(self) -> float:
        """That of the candidates."""
        return mean([column.depth / column.ideal for column in self.columns])

    @property
    def depth_text(self) -> str:
        """That ratio in words."""
        return f"a point query meets {self.ratio:.1f} × the files of a perfect layout"

    @property
    def is_read(self) -> bool:
        """Whether the bounds of its files were read."""
        return "ranges" in vars(self)

    def is_free(self, at: Numbers) -> bool:
        """Whether no other plan has any of these."""
        return not self._pinned[at].any()

    def is_in_order(self, at: Numbers) -> bool:
        """Whether these are files of one group that was clustered."""
        return not np.isin(at, self.groups.unclustered).any() and len(set(self._group_ids[at].tolist())) == 1

    def _note(self, field_id: int) -> str:
        ranges = self.ranges[field_id]
        column = next((item for item in self.terms.facts.sorting.columns if item.field_id == field_id), None)
        bounded = np.flatnonzero(ranges.is_known)
        if column is None or not column.kind.startswith(_TEXTS) or len(bounded) < 2:
            return ""
        lower, upper = ranges.lower[bounded], ranges.upper[bounded]
        if (lower != lower[0]).any() or (upper != upper[0]).any() or lower[0] == upper[0]:
            return ""
        shared = len(self.rows[int(bounded[0])].data.metrics.lower_bounds[field_id].decode(errors="replace"))
        if shared < _CUT_AT:
            return ""
        key, properties = f"{METRICS_KEY}{column.name}", self.terms.facts.properties
        mode = properties.get(key) or properties.get("write.metadata.metrics.default", "")
        length = re.search(r"\d+", mode)
        is_longer = "full" in mode.lower() or (int(length[0]) if length else BOUND_CHARACTERS) > shared
        return f"values of {column.name} share the first {shared} characters or more, where their bounds end" + (
            ": clustered files get longer ones"
            if is_longer
            else f", so readers skip no file by {column.name}: set {key}=full, or truncate(n) with a greater n"
        )

    @property
    def others(self) -> list[GroupState]:
        """The groups that have another layout than the table is to have, and keep it."""
        return [files.group for files in self.groups.kept if not files.group.is_current]

    def waits_for_more(self) -> str:
        """Why its unclustered files are not clustered yet."""
        if self.others and not len(self.groups.unclustered):
            return model.CLUSTERED_OTHERWISE
        if not self.unclustered_bytes:
            return "nothing to do: no unclustered files"
        needed = self.terms.config.least_bytes(self.terms.target)
        return f"nothing to do: {size(self.unclustered_bytes)} unclustered, {size(needed)} needed"

    @cached_property
    def last(self) -> datetime | None:
        """When the newest of its groups was planned; None: nothing is clustered."""
        times = [
            min((moment for at in files.at.tolist() if (moment := clustered_at(self.paths[at].as_py()))), default=None)
            for files in self.groups.kept
            if files.group.is_current
        ]
        return max((moment for moment in times if moment is not None), default=None)

    def quiet_until(self) -> datetime | None:
        """Until when it waits since others write to it; None: it does not."""
        stats = self.partition.stats
        deletes = (*stats.equality_deletes, *stats.position_deletes)
        numbers = [*self.numbers[self.groups.unclustered].tolist(), *(delete.sequence_number for delete in deletes)]
        newest, snapshots = max(numbers, default=None), self.terms.facts.snapshots
        newest_ones = (snapshot for snapshot in snapshots if snapshot.sequence_number == newest)
        times = (snapshot.committed_at for snapshot in newest_ones if snapshot.operation != _REPLACE)
        written = max(times, default=None)  # None: longer ago than is known
        until = None if written is None else written + self.terms.config.quiet
        return until if until is not None and until > self.terms.facts.now else None

    def outputs(self, at: Numbers) -> int:
        """Files that come out of these."""
        return max(1, -(-int(self.live[at].sum()) // self.terms.target))

    def trigger(self) -> tuple[str, datetime | None]:
        """What the triggers say: why the partition is due, or "" with the time when that may change."""
        config, facts = self.terms.config, self.terms.facts
        if not self.has_much:
            return "", None
        if self.ratio > config.trigger_depth_ratio:
            return f"{self.depth_text}, more than {config.trigger_depth_ratio:g} ×", None
        if config.trigger_commits is not None:
            commits = commits_since(self.last, facts.snapshots)
            if commits >= config.trigger_commits:
                return f"{many(commits, 'commit')} since it was clustered; {config.trigger_commits} are enough", None
        if config.trigger_interval is None:
            return "", None
        due = None if self.last is None else self.last + config.trigger_interval
        if due is None or due <= facts.now:
            return f"clustered more than {config.trigger_interval} ago" if self.last else "never clustered", None
        return "", due

    def verdict(
        self, is_due: bool, reason: str, due_at: datetime | None = None, *, deep: bool = True
    ) -> PartitionDepth:
        """The verdict on it; `deep`: with the depth of its columns."""
        columns = self.columns if deep else ()
        return PartitionDepth(
            key=self.key,
            is_due=is_due,
            reason=reason,
            files=len(self.sizes),
            bytes=int(self.sizes.sum()),
            unclustered_files=len(self.groups.unclustered),
            unclustered_bytes=int(self.sizes[self.groups.unclustered].sum()),
            groups=tuple(group_files.group for group_files in self.groups.kept),
            columns=columns,
            ratio=mean([column.depth / column.ideal for column in columns]),
            due_at=due_at,
        )


#: What is predicted has to be below this share of what is.
_WORTH = 0.7


@dataclass(frozen=True, slots=True)
class Piece:
    """Files that would become a group, by index; `ratio` is how deep they lie now by what is ideal."""

    at: Numbers
    why: str
    ratio: float
    before: tuple[float, ...]
    predicted: tuple[float, ...]
    shares: Mapping[str, tuple[float, float]]  # of the bytes that a point query reads, before and after, by column

    @property
    def saved(self) -> float:
        """The share of the files that a point query meets which it would not meet any more."""
        return max(0.0, 1 - REACHED / self.ratio)


def _groups(case: PartitionCase) -> Iterator[Numbers]:
    terms, at = case.terms, case.candidates
    first = terms.resolved.counted[0]
    here = Candidates(case.ranges[first].part(at), case.sizes[at], case.numbers[at])
    for indexes in grouped(here, terms.config.group_by, terms.most_bytes):
        ordered, start = at[indexes], 0
        for part in fitting([case.rows[row] for row in ordered.tolist()]):
            yield ordered[start : start + len(part)]
            start += len(part)


def _gains(case: PartitionCase, at: Numbers) -> bool:
    if len(at) == 1 and not case.has_deletes[at[0]] and case.outputs(at) == 1:
        return False
    if case.terms.request.full:
        return True
    if case.is_in_order(at) or int(case.sizes[at].sum()) > case.terms.most_bytes:
        return False
    if len(at) == 1 and case.has_deletes[at[0]]:
        return True
    # On request a smaller gain is accepted.
    return (1.0 if case.terms.request.asked else _WORTH) * case.ratio_of(at) > REACHED


def _merges(case: PartitionCase) -> Iterator[Piece]:
    if case.terms.request.full or not case.may_merge:
        return
    first = case.ranges[case.terms.resolved.counted[0]]

    def span(files: GroupFiles) -> tuple[int, int]:
        if not first.is_known[files.at].all():
            return -1, int(first.upper.max(initial=0))
        return int(first.lower[files.at].min()), int(first.upper[files.at].max())

    sealed = [files for files in case.groups.sealed if case.is_free(files.at)]
    for parts in merging_tiers(sealed, span, case.sizes, case.terms.sealing, case.terms.most_bytes):
        at = np.sort(np.concatenate([files.at for files in parts]))
        if message_bytes(case.rows[row] for row in at.tolist()) <= MOST_MESSAGE_BYTES:
            yield _piece(case, at, f"{len(parts)} sealed groups of one tier overlap")


def _piece(case: PartitionCase, at: Numbers, why: str) -> Piece:
    counted = case.terms.resolved.counted
    now = {key: case.depth(key, at) for key in counted}
    later = {key: min(now[key], REACHED * case.ideal(key, at)) for key in counted}
    units = float(units_of(case.sizes[at], case.terms.target).sum())
    files = max(1.0, float(case.live[at].sum()) / case.terms.target)
    shares = {
        case.terms.facts.sorting.name_of(key): (min(1.0, now[key] / units), min(1.0, later[key] / files))
        for key in counted
    }
    before = tuple(depth(case.ranges[key].part(at), case.records[at]) for key in counted)
    return Piece(at, why, case.ratio_of(at), before, tuple(later[key] for key in counted), shares)


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
    layout, name = resolved.layout, layout_name(resolved.layout, facts.sorting)
    notes = (*notes, *resolved.notes)
    verdict = ClusterVerdict(False, model.NO_SNAPSHOT, None, layout, name, notes, choice=chosen_columns)
    if facts.scan is None:
        return verdict
    partitions = partitions_of(facts.scan, facts.optimizing)
    chosen = choose([partition.key for partition in partitions], facts, config, request)
    if not partitions:
        return replace(verdict, reason=model.NO_FILES)
    terms = PlanContext(facts, config, request, resolved, Layouts(facts.groups, facts.learn))
    evaluations = _evaluations(partitions, facts.scan, chosen, terms)
    if (constant := _constant(evaluations, resolved, facts)) is not None:
        if by_choice:
            return replace(verdict, reason=f"nothing to gain: {constant}")
        raise misconfigured(
            constant, hint=f"Name columns that queries filter by and that have several values, with {COLUMNS_KEY}."
        )
    verdicts = tuple(evaluated.verdict for evaluated in evaluations)
    plan = _plan(evaluations, facts.scan, terms)
    others = [group for evaluated in evaluations for group in evaluated.case.others]
    if others and not request.full:
        names = sorted({layout_name(other.layout, facts.sorting) for other in others})
        files = f"{many(sum(other.files for other in others), 'file')} clustered by {' and '.join(names)}"
        wanted = f"by {name}, too, use --full, or {RELAYOUT_KEY}=true"
        verdict = replace(verdict, notes=(*notes, f"{files} stay as they are: to cluster them {wanted}"))
    return replace(
        verdict,
        is_due=plan is not None,
        reason=model.of_table(verdicts, facts.path_of),
        due_at=min((verdict.due_at for verdict in verdicts if verdict.due_at is not None), default=None),
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
    evaluations = _evaluations(partitions, facts.scan, chosen, terms)
    parts = tuple(replace(item.verdict, is_due=False, reason=model.NO_COLUMNS, due_at=None) for item in evaluations)
    name = layout_name(layout, facts.sorting)
    return ClusterVerdict(False, model.NO_COLUMNS, None, layout, name, resolved.notes, parts, learned=layouts.learned)


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
    evaluated = [_evaluated(cases[key], scan, terms, reading) for key in chosen.order]
    return [*evaluated, *(_skipped(cases[key], chosen) for key in sorted(chosen.left, key=list(cases).index))]


def _skipped(case: PartitionCase, chosen: Chosen) -> _Evaluated:
    why, due_at = chosen.left[case.key]
    return _Evaluated(case, case.verdict(False, f"nothing to do: {why}", due_at, deep=case.terms.request.explain))


def _evaluated(case: PartitionCase, scan: TableScan, terms: PlanContext, reading: Reading) -> _Evaluated:
    config, request = terms.config, terms.request
    reason = f"asked for{', groups in order too' if request.full else f': {size(case.unclustered_bytes)} unclustered'}"
    if not request.asked:
        if not case.has_much and not case.may_merge:
            return _Evaluated(case, case.verdict(False, case.waits_for_more(), deep=request.explain))
        if (until := case.quiet_until()) is not None:
            why = f"nothing to do yet: others wrote within {config.quiet}; at {until:%Y-%m-%d %H:%M} UTC"
            return _Evaluated(case, case.verdict(False, why, until))
        reason, due_at = case.trigger()
        if not reason and not case.may_merge:
            why = f"nothing to do: {case.depth_text}, above {config.trigger_depth_ratio:g} × is due"
            return _Evaluated(case, case.verdict(False, why, due_at))
    # Sealed groups that become one and, where it is due, what is not clustered.
    candidates = _groups(case) if reason else ()
    pieces = [*_merges(case), *(_piece(case, at, "") for at in candidates if _gains(case, at))]
    groups = [(piece, _group(case, piece, scan, terms, reading)) for piece in pieces]
    if not groups:
        return _Evaluated(case, case.verdict(False, _why_none(case)))
    within = config.max_payback
    paying = tuple(
        item
        for item in groups
        if request.asked or not reading.has_scans or pays_back(item[1].core_ms, item[1].gain * item[1].core_ms, within)
    )
    if not paying:
        cost, spared = groups[0][1].core_ms, groups[0][1].gain * groups[0][1].core_ms
        why = (
            f"nothing to do: about {cost / 1000:.0f} CPU s, of which scans would spare {spared / 1000:.1f} s a day, "
            f"and not all within {within.days} d"
        )
        return _Evaluated(case, case.verdict(False, why))
    because = reason or next(piece.why for piece, _ in paying)
    return _Evaluated(case, case.verdict(True, because), paying)


def _why_none(case: PartitionCase) -> str:
    if not len(case.unclustered):
        return case.waits_for_more() if case.is_free(np.arange(len(case.sizes))) else model.RESERVED
    if case.ratio > 1.0:
        return f"nothing to do: {case.depth_text}, clustering reaches about {REACHED:.1f} ×"
    return model.NO_GROUPS


def _group(case: PartitionCase, piece: Piece, scan: TableScan, terms: PlanContext, reading: Reading) -> GroupPlan:
    rows = [case.rows[at] for at in piece.at.tolist()]
    files = tuple(sorted(rows, key=lambda file: (file.data.sequence_number, file.data.path)))
    data_bytes = sum(file.data.size_bytes for file in files)
    input_bytes = data_bytes + sum(delete.size_bytes for delete in deletes_of(files).values())
    work = core_ms(input_bytes, terms.facts.core_ms_per_mb)
    gain = piece.saved
    if reading.has_scans:
        gain = reading.spared_ms(data_bytes, piece.shares) / work
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


def _plan(evaluations: Sequence[_Evaluated], scan: TableScan, terms: PlanContext) -> ClusterPlan | None:
    """The groups that fit into one process, the most worthwhile first; at least one."""
    order: Mapping[PartitionKey, int] = {evaluated.verdict.key: at for at, evaluated in enumerate(evaluations)}
    groups = sorted(
        (group for evaluated in evaluations for _, group in evaluated.pieces),
        key=lambda group: (-rank(group.gain), order[group.key], -group.gain, group.group_id),
    )
    if not groups:
        return None
    chosen: list[GroupPlan] = []
    taken_bytes = cost = 0
    budget = terms.facts.budget_bytes
    for group in groups:
        if len(chosen) >= terms.config.max_groups or (budget is not None and cost > budget):
            break
        if chosen and taken_bytes + group.input_bytes > terms.config.max_plan_bytes:
            continue
        chosen.append(group)
        taken_bytes, cost = taken_bytes + group.input_bytes, cost + group.cost
    layout = terms.resolved.layout
    _, seed = _identity(scan.snapshot_id, layout, [group.group_id for group in chosen])
    orders = terms.facts.sorting.orders
    return ClusterPlan(
        layout,
        sort_order_id(layout, orders),
        tuple(chosen),
        scan.snapshot_id,
        scan.sequence_number,
        seed,
        len(groups) - len(chosen),
    )


def _constant(evaluations: Sequence[_Evaluated], resolved: Resolved, facts: ClusterFacts) -> str | None:
    """A warning that a column has one value in the whole table and orders nothing; given once all files were read."""
    cases = [evaluated.case for evaluated in evaluations]
    files = sum(len(case.sizes) for case in cases)
    if files < 2 or not all(case.is_read for case in cases):
        return None
    for field_id in resolved.counted:
        values = {case.ranges[field_id].constant for case in cases}
        if len(values) == 1 and None not in values:
            name = facts.sorting.name_of(field_id)
            return f"column {name}, by which the table is to be clustered, has one value in all {files} files"
    return None
