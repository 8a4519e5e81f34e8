"""One partition: how deep its files lie, whether it is due, and the groups that would gain."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property

import numpy as np

from amoro_core.live.columns import Mask, Numbers
from amoro_core.model.files import ScannedFile
from amoro_core.model.plans import PartitionKey
from amoro_core.planning.clustering import words
from amoro_core.planning.clustering.choosing import commits_since, last_written
from amoro_core.planning.clustering.depth import Ranges, depth, ideal, ranges_of, units_of
from amoro_core.planning.clustering.facts import ColumnDepth, PartitionDepth
from amoro_core.planning.clustering.kept import GroupIds, PartitionGroups, clustered_at, groups_in
from amoro_core.planning.clustering.properties import FileChoice
from amoro_core.planning.clustering.terms import Terms
from amoro_core.planning.clustering.weighing import mean
from amoro_core.planning.partitions import PartitionFiles

_TEXTS = ("string", "binary")
#: Characters to which writers cut bounds.
_CUT_AT = 16


class PartitionCase:
    """One partition under evaluation."""

    def __init__(self, partition: PartitionFiles, group_ids: GroupIds, pinned: Mask, terms: Terms) -> None:
        """`group_ids` and `pinned` are of all live files of the table."""
        self.partition = partition
        self.terms = terms
        files = partition.files
        self.sizes, self.live = files.sizes, files.live_bytes
        self.numbers = files.files.columns.numbers[files.ids]
        self.paths = files.files.columns.paths_of(files.ids)
        self._pinned = pinned[files.ids]
        self._group_ids = group_ids[files.ids]

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
        return {one: ranges_of(datas, one, key(one)) for one in self.terms.resolved.counted}

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
            every = np.arange(len(self.sizes))
            return self._selected(every[~self._pinned])
        joined = [one.at for one in self.groups.open if self.is_free(one.at)]
        return np.sort(np.concatenate((self.unclustered, *joined)))

    def _selected(self, at: Numbers) -> Numbers:
        selects = self.terms.facts.selects
        if selects is None:
            return at
        return at[np.array([selects(self.rows[one].data) for one in at.tolist()], np.bool_)]

    @property
    def unclustered_bytes(self) -> int:
        """Bytes of the files that are in no group and may be clustered."""
        return int(self.sizes[self.unclustered].sum())

    @property
    def has_much(self) -> bool:
        """Whether so many bytes are unclustered that anything may be due."""
        return self.unclustered_bytes >= self.terms.config.least_bytes(self.terms.target)

    @property
    def may_merge(self) -> bool:
        """Whether there are enough sealed groups of a tier to become one, wherever they lie."""
        tiers = [one.group.tier for one in self.groups.sealed]
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
        found: Numbers = files.files.columns.records[files.ids]
        return found

    def depth(self, field_id: int, at: Numbers) -> float:
        """How many files of target size a point query on the column reads of these."""
        units = units_of(self.sizes[at], self.terms.target)
        return depth(self.ranges[field_id].part(at), self.records[at], units)

    def ideal(self, field_id: int, at: Numbers) -> float:
        """How many files of target size a point query on the column reads of these in the best of layouts.

        That is a perfect one, or what an earlier clustering showed to be possible.
        """
        return self._perfect(at) * self._reached[field_id]

    def _perfect(self, at: Numbers) -> float:
        files = max(1.0, float(self.live[at].sum()) / self.terms.target)
        return ideal(self.terms.resolved.layout.strategy, files, len(self.terms.resolved.counted))

    @cached_property
    def _reached(self) -> Mapping[int, float]:
        """By column how far above the ideal groups lie that were clustered: more is not to be had."""
        current = [one for one in self.groups.kept if one.group.is_current]
        found = {}
        for field_id in self.terms.resolved.counted:
            weights = [float(one.group.live_bytes) for one in current]
            ratios = [self.depth(field_id, one.at) / self._perfect(one.at) for one in current]
            total = sum(weights)
            known = sum(ratio * weight for ratio, weight in zip(ratios, weights, strict=True)) / total if total else 1.0
            found[field_id] = max(1.0, known)
        return found

    def ratio_of(self, at: Numbers) -> float:
        """The mean of depth ÷ ideal of these files over the counted columns."""
        return mean([self.depth(one, at) / self.ideal(one, at) for one in self.terms.resolved.counted])

    @property
    def ratio(self) -> float:
        """That of the candidates."""
        return mean([one.depth / one.ideal for one in self.columns])

    @property
    def key(self) -> PartitionKey:
        """The partition."""
        return self.partition.key

    @property
    def has_deletes(self) -> Mask:
        """Which files have deletes."""
        return self.partition.files.has_deletes

    @property
    def has_pinned(self) -> bool:
        """Whether other plans have any of the files."""
        return bool(self._pinned.any())

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
        column = next((one for one in self.terms.facts.sorting.columns if one.field_id == field_id), None)
        if column is None or not column.kind.startswith(_TEXTS) or len(ranges) < 2 or not ranges.is_known.all():
            return ""
        lower, upper = ranges.lower, ranges.upper
        if (lower != lower[0]).any() or (upper != upper[0]).any() or lower[0] == upper[0]:
            return ""
        bound = self.rows[0].data.metrics.lower_bounds[field_id]
        if len(bound.decode(errors="replace")) < _CUT_AT:
            return ""
        return (
            f"bounds of {column.name} are cut at {_CUT_AT} characters, which its values share: "
            f"write.metadata.metrics.column.{column.name}=full lets readers tell files apart"
        )

    @cached_property
    def last(self) -> datetime | None:
        """When the newest of its groups was planned; None: nothing is clustered."""
        times = [
            min((found for at in one.at.tolist() if (found := clustered_at(self.paths[at].as_py()))), default=None)
            for one in self.groups.kept
            if one.group.is_current
        ]
        return max((one for one in times if one is not None), default=None)

    def quiet_until(self) -> datetime | None:
        """Until when it waits since others write to it; None: it does not."""
        stats = self.partition.stats
        deletes = (*stats.equality_deletes, *stats.position_deletes)
        numbers = [*self.numbers[self.groups.unclustered].tolist(), *(one.sequence_number for one in deletes)]
        written = last_written(numbers, self.terms.facts.snapshots)
        until = None if written is None else written + self.terms.config.quiet
        return until if until is not None and until > self.terms.facts.now else None

    def outputs(self, at: Numbers) -> int:
        """Files that come out of these."""
        return max(1, -(-int(self.live[at].sum()) // self.terms.target))

    def trigger(self) -> tuple[str, datetime | None]:
        """What the triggers say: why the partition is due, or "" with the time when that may change."""
        config, facts = self.terms.config, self.terms.facts
        if self.has_much:
            if self.ratio > config.trigger_depth_ratio:
                return words.by_depth(self.ratio, config.trigger_depth_ratio), None
            if config.trigger_commits is not None:
                commits = commits_since(self.last, facts.snapshots)
                if commits >= config.trigger_commits:
                    return words.by_commits(commits, config.trigger_commits), None
            if config.trigger_interval is not None:
                due = None if self.last is None else self.last + config.trigger_interval
                if due is None or due <= facts.now:
                    return words.by_interval(self.last, config.trigger_interval), None
                return "", due
        return "", None

    def told(self, is_due: bool, reason: str, due_at: datetime | None = None, *, deep: bool = True) -> PartitionDepth:
        """The verdict on it; `deep`: with the depth of its columns."""
        columns = self.columns if deep else ()
        return PartitionDepth(
            key=self.partition.key,
            is_due=is_due,
            reason=reason,
            files=len(self.sizes),
            bytes=int(self.sizes.sum()),
            unclustered_files=len(self.groups.unclustered),
            unclustered_bytes=int(self.sizes[self.groups.unclustered].sum()),
            groups=tuple(one.group for one in self.groups.kept),
            columns=columns,
            ratio=mean([one.depth / one.ideal for one in columns]),
            due_at=due_at,
        )
