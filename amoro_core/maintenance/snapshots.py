"""Which snapshots and references expire, how two snapshots differ, and which tags are due, by which properties."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from amoro_core.maintenance.data_expiry import DatePattern
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.properties import boolean, declared, interval, milliseconds, minutes, one_of, unless_empty, whole
from amoro_core.model.tables import MAIN, Ref, SnapshotFacts, ancestors, summary_count

#: Iceberg's default, if neither its property nor Amoro's is set; Amoro's own default is 720 min.
DEFAULT_AGE = timedelta(days=5)

_UNITS = {
    ("d", "day", "days"): timedelta(days=1),
    ("h", "hour", "hours"): timedelta(hours=1),
    ("m", "min", "minute", "minutes"): timedelta(minutes=1),
    ("s", "sec", "second", "seconds"): timedelta(seconds=1),
    ("ms", "milli", "millis", "millisecond", "milliseconds"): timedelta(milliseconds=1),
}
_SPAN = re.compile(r"([0-9]{1,9})\s*([a-z]+)")


def span(text: str) -> timedelta:
    """A whole number with one of Amoro's units, such as "720min" or "7 d"; a bare number is minutes."""
    word = text.strip().lower()
    if word.isascii() and word.isdigit():
        return minutes(word)
    match = _SPAN.fullmatch(word)
    unit = next((length for names, length in _UNITS.items() if match is not None and match[2] in names), None)
    if match is None or unit is None:
        raise ValueError("expected a whole number with its unit, such as 30min, 12h or 7d")
    return int(match[1]) * unit


def _keys(text: str) -> tuple[str, ...]:
    if not text.strip():
        return ()
    keys = tuple(part.strip() for part in text.split(","))
    if not all(re.fullmatch(r"[\w.:/-]*[A-Za-z][\w.:/-]*", key, re.ASCII) and "'" not in key for key in keys):
        raise ValueError("expected keys of snapshots' summaries, with commas between them")
    return keys


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """Which snapshots of a table are kept and for how long, and how long the files of expired ones are kept."""

    enabled: bool = declared("table-expire.enabled", "true", boolean)
    amoro_age: timedelta | None = declared("snapshot.keep.duration", "", unless_empty(span))
    iceberg_age: timedelta | None = declared("history.expire.max-snapshot-age-ms", "", unless_empty(milliseconds(0)))
    amoro_count: int = declared("snapshot.keep.min-count", "1", whole(0))
    iceberg_count: int = declared("history.expire.min-snapshots-to-keep", "1", whole(0))
    #: The maximum age of branches and tags without their own; None: they are kept for ever.
    max_ref_age: timedelta | None = declared("history.expire.max-ref-age-ms", "", unless_empty(interval))
    writer_retention: timedelta = declared("snapshot.keep.flink.checkpoint-retention", "7d", span)
    writer_keys: tuple[str, ...] = declared("maintenance.expire-snapshots.writer-keys", "", _keys)
    trash_keep: timedelta = declared("maintenance.expire-snapshots.trash-keep", "1d", span)
    clean_metadata: bool = declared("maintenance.expire-snapshots.clean-metadata", "false", boolean)

    @property
    def max_age(self) -> timedelta:
        """The maximum age of snapshots, unless their branch sets another: the longer of the configured ones."""
        ages = [age for age in (self.amoro_age, self.iceberg_age) if age is not None]
        return max(ages) if ages else DEFAULT_AGE

    @property
    def min_count(self) -> int:
        """The minimum of snapshots to keep of a branch, unless it sets another: at least one."""
        return max(self.amoro_count, self.iceberg_count, 1)


_KAFKA_OFFSETS = "kafka.connect.offsets."


@dataclass(frozen=True, slots=True, order=True)
class Writer:
    """One writer, identified by its key and id among others on the same branch."""

    kind: str  # for display: "Flink", "Spark", "Kafka Connect", or the key that properties name
    name: str  # the job, the query, or the consumer; "" if the key identifies it

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


def writers_of(summary: Mapping[str, str], keys: Collection[str] = ()) -> Iterator[Writer]:
    """The writers that would find their state in a snapshot with this summary. `keys` are those of further writers."""
    job = summary.get("flink.job-id")
    if job is not None and "flink.max-committed-checkpoint-id" in summary:
        # Flink's committer takes a snapshot without an operator id for that of any operator of its job.
        yield Writer("Flink", f"{job} {summary.get('flink.operator-id', '')}".rstrip())
    query = summary.get("spark.sql.streaming.queryId")
    if query is not None and "spark.sql.streaming.epochId" in summary:
        yield Writer("Spark", query)
    for key in summary:
        if key.startswith(_KAFKA_OFFSETS):
            yield Writer("Kafka Connect", key.removeprefix(_KAFKA_OFFSETS))
        elif key in keys:
            yield Writer(key, "")


class KeepReason(StrEnum):
    """Why a snapshot is kept. Of several grounds the first one counts."""

    BRANCH = "branch"  # the head of one
    TAG = "tag"
    AGE = "age"  # in the history of a branch, and young
    COUNT = "count"  # among the newest of a branch
    UNREFERENCED = "unreferenced"  # in no branch's history, and young
    CHAIN = "chain"  # between a branch's head and where a writer finds its state
    PIN = "process"  # a process, an undo or a lease needs it, or a descendant on the way to its branch's head
    LEASE = "lease"  # newer than a lease's


@dataclass(frozen=True, slots=True)
class RetainedSnapshot:
    """Why one snapshot is kept."""

    ground: KeepReason
    reason: str


@dataclass(frozen=True, slots=True)
class Target:
    """What was requested beside the table's properties, and which snapshots the coordinator knows to be needed."""

    max_age: timedelta | None = None
    min_count: int | None = None
    snapshot_ids: tuple[int, ...] = ()  # to go whatever their age, unless something needs them
    pinned: Mapping[int, str] = field(default_factory=dict)  # each stays, with its chain to the branch's head
    since: Mapping[int, str] = field(default_factory=dict)  # each stays, with all that are newer


@dataclass(frozen=True, slots=True)
class SnapshotSelection:
    """The decision on every snapshot and reference of a table; each snapshot is in exactly one of the two maps."""

    stay: Mapping[int, RetainedSnapshot]
    go: Mapping[int, str]  # to the reason; the oldest first
    refs: Mapping[str, str]  # branches and tags that go, to the reason
    refused: Mapping[int, str]  # snapshots that were named and can't go, to the reason

    @property
    def staying(self) -> str:
        """How many are kept and on which grounds, as a phrase; writers and leases by name."""
        ordered = sorted(self.stay.values(), key=lambda snapshot: tuple(KeepReason).index(snapshot.ground))
        counts = Counter(_WORDS.get(snapshot.ground, (snapshot.reason, snapshot.reason)) for snapshot in ordered)
        words = ", ".join(f"{count} {word if count == 1 else many}" for (word, many), count in counts.items())
        return f"{len(self.stay)} stay ({words})" if words else "none would stay"


#: Of one snapshot and of several; chains, processes and leases say their own.
_WORDS: Mapping[KeepReason, tuple[str, str]] = {
    KeepReason.BRANCH: ("branch", "branches"),
    KeepReason.TAG: ("tag", "tags"),
    KeepReason.AGE: ("age", "age"),
    KeepReason.COUNT: ("count", "count"),
    KeepReason.UNREFERENCED: ("age", "age"),
}


def select(
    snapshots: Sequence[SnapshotFacts], refs: Sequence[Ref], config: RetentionConfig, target: Target, now: datetime
) -> SnapshotSelection:
    """Select which of the table's snapshots, all of which are given, are kept and which expire.

    Without writers, pins and leases the result is that of Java's `RemoveSnapshots`. A requested snapshot expires unless
    a reference, a writer, a pin or a lease needs it: then it is refused.
    """
    history = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
    cutoff = now - (config.max_age if target.max_age is None else target.max_age)
    count = max(config.min_count if target.min_count is None else target.min_count, 1)
    expired = _expired_refs(history, refs, config, now)
    live = [ref for ref in refs if ref.name not in expired]
    stay: dict[int, RetainedSnapshot] = {}
    for ref in live:
        ground = KeepReason.BRANCH if ref.is_branch else KeepReason.TAG
        _keep(stay, [ref.snapshot_id], ground, f"{ground.value} {ref.name}")
    of_refs = dict(stay)
    for ref in live:
        if ref.is_branch:
            _keep_branch(stay, history, ref, cutoff, count, now)
    reached = set(_reached(history, live))
    for snapshot in snapshots:
        if snapshot.snapshot_id not in reached and snapshot.committed_at >= cutoff:
            reason = "no branch or tag reaches it, but it is too recent"
            _keep(stay, [snapshot.snapshot_id], KeepReason.UNREFERENCED, reason)
    needed = dict(of_refs)
    _keep_needed(needed, history, live, config, target, now)
    named = {number for number in target.snapshot_ids if number in history}
    refused = {number: needed[number].reason for number in sorted(named) if number in needed}
    for snapshot_id in named:
        stay.pop(snapshot_id, None)
    for snapshot_id, why in needed.items():
        stay.setdefault(snapshot_id, why)
    ordered = sorted(snapshots, key=lambda item: (item.committed_at, item.sequence_number))
    go = {item.snapshot_id: "no branch or tag reaches it" for item in ordered if item.snapshot_id not in stay}
    go |= {key: "named" if key in named else "past its retention" for key in go if key in named or key in reached}
    return SnapshotSelection({number: why for number, why in stay.items() if number in history}, go, expired, refused)


_Known = Mapping[int, SnapshotFacts]  # the table's snapshots, by their ids


def _reached(history: _Known, refs: Iterable[Ref]) -> Iterator[int]:
    """Snapshots in the history of a branch, and tagged ones; not the ancestors of a tag's snapshot."""
    for ref in refs:
        if ref.is_branch:
            yield from (snapshot_facts.snapshot_id for snapshot_facts in ancestors(history, ref.snapshot_id))
        else:
            yield ref.snapshot_id


def _keep(stay: dict[int, RetainedSnapshot], snapshot_ids: Iterable[int], ground: KeepReason, reason: str) -> None:
    for snapshot_id in snapshot_ids:
        stay.setdefault(snapshot_id, RetainedSnapshot(ground, reason))


def _expired_refs(history: _Known, refs: Sequence[Ref], config: RetentionConfig, now: datetime) -> dict[str, str]:
    """The branches and tags past their age, never main. One whose snapshot is unknown protects nothing, and is kept."""
    expired = {}
    for ref in refs:
        snapshot = history.get(ref.snapshot_id)
        age = config.max_ref_age if ref.max_ref_age is None else ref.max_ref_age
        if ref.name != MAIN and snapshot is not None and age is not None and now - snapshot.committed_at > age:
            expired[ref.name] = f"{'branch' if ref.is_branch else 'tag'} {ref.name} is older than {duration_text(age)}"
    return expired


def _keep_branch(
    stay: dict[int, RetainedSnapshot], history: _Known, ref: Ref, cutoff: datetime, count: int, now: datetime
) -> None:
    if ref.max_snapshot_age is not None:
        cutoff = now - ref.max_snapshot_age
    if ref.min_snapshots_to_keep is not None:
        count = max(ref.min_snapshots_to_keep, 1)
    for number, snapshot in enumerate(ancestors(history, ref.snapshot_id), 1):
        if snapshot.committed_at >= cutoff:
            _keep(stay, [snapshot.snapshot_id], KeepReason.AGE, f"recent, in the history of {ref.name}")
        elif number <= count:
            _keep(stay, [snapshot.snapshot_id], KeepReason.COUNT, f"one of the {count} newest of {ref.name}")
        else:
            return


def _keep_needed(
    stay: dict[int, RetainedSnapshot],
    history: _Known,
    refs: Sequence[Ref],
    config: RetentionConfig,
    target: Target,
    now: datetime,
) -> None:
    """Keep what a writer, a process, an undo or a lease needs."""
    for ref in refs:
        if ref.is_branch:
            chain = list(ancestors(history, ref.snapshot_id))
            _keep_chains(stay, chain, _states(chain, config, now), KeepReason.CHAIN)
            ids = [snapshot.snapshot_id for snapshot in chain]
            pins = {at: target.pinned[id_] for at, id_ in enumerate(ids) if id_ in target.pinned}
            _keep_chains(stay, chain, pins, KeepReason.PIN)
    for snapshot_id, reason in target.pinned.items():
        if snapshot_id in history:  # of no branch, or not any more
            _keep(stay, [snapshot_id], KeepReason.PIN, reason)
    for snapshot_id, reason in target.since.items():
        if (oldest := history.get(snapshot_id)) is not None:
            _keep(stay, [snapshot_id, *_newer(history, oldest)], KeepReason.LEASE, reason)


def _states(chain: Sequence[SnapshotFacts], config: RetentionConfig, now: datetime) -> dict[int, str]:
    """The positions in the chain at which writers find their state, if young enough, with the writers' names."""
    newest: dict[Writer, int] = {}
    for at, snapshot in enumerate(chain):
        for writer in writers_of(snapshot.summary, config.writer_keys):
            newest.setdefault(writer, at)
    oldest = now - config.writer_retention
    return {at: f"chain of {writer}" for writer, at in newest.items() if chain[at].committed_at >= oldest}


def _keep_chains(
    stay: dict[int, RetainedSnapshot], chain: Sequence[SnapshotFacts], ends: Mapping[int, str], ground: KeepReason
) -> None:
    """Keep the chain from the head down to each of these positions, the nearest first."""
    for end in sorted(ends):
        _keep(stay, (snapshot.snapshot_id for snapshot in chain[: end + 1]), ground, ends[end])


def _newer(history: _Known, oldest: SnapshotFacts) -> Iterator[int]:
    """Snapshots that are later by number or by time: format 1 has no numbers, and clocks differ."""
    for snapshot in history.values():
        if snapshot.sequence_number > oldest.sequence_number or snapshot.committed_at >= oldest.committed_at:
            yield snapshot.snapshot_id


def duration_text(age: timedelta) -> str:
    """A duration in its largest whole unit, such as "5d" or "90min"."""
    seconds = age // timedelta(seconds=1)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


@dataclass(frozen=True, slots=True)
class SnapshotTotals:
    """What a snapshot's summary says of all its files; None: it does not say."""

    data_files: int | None
    delete_files: int | None
    records: int | None
    position_deletes: int | None  # rows
    equality_deletes: int | None  # rows
    bytes: int | None  # of data and delete files


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two snapshots, and how one led to the other."""

    before: SnapshotFacts
    after: SnapshotFacts
    totals_before: SnapshotTotals
    totals_after: SnapshotTotals
    is_ancestor: bool  # whether `after` was made of `before`
    commits: int  # from `before` to `after`, with the latter; 0 where one did not lead to the other
    own_commits: int  # those of them that Amoro made


def totals_of(summary: Mapping[str, str]) -> SnapshotTotals:
    """The totals of a snapshot's summary; what is missing or no number is not known."""
    totals = ("data-files", "delete-files", "records", "position-deletes", "equality-deletes", "files-size")
    return SnapshotTotals(*(summary_count(summary, f"total-{name}") for name in totals))


def compare(snapshots: Sequence[SnapshotFacts], before: SnapshotFacts, after: SnapshotFacts) -> Comparison:
    """Compare two of the table's snapshots, all of which are given."""
    history = list(ancestors({snapshot.snapshot_id: snapshot for snapshot in snapshots}, after.snapshot_id))
    ids = [snapshot.snapshot_id for snapshot in history]
    is_ancestor = before.snapshot_id in ids
    path = history[: ids.index(before.snapshot_id)] if is_ancestor else []
    own = sum(PROCESS_ID in snapshot.summary for snapshot in path)
    totals = totals_of(before.summary), totals_of(after.summary)
    return Comparison(before, after, *totals, is_ancestor, len(path), own)


UTC = ZoneInfo("UTC")


class TagPeriod(StrEnum):
    """How often a tag is made."""

    HOURLY = "hourly"
    DAILY = "daily"
    MONTHLY = "monthly"

    @property
    def pattern(self) -> str:
        """The default pattern of the tag's name."""
        return {"hourly": "'tag-'yyyyMMddHH", "daily": "'tag-'yyyyMMdd", "monthly": "'tag-'yyyyMM"}[self]

    def start_of(self, moment: datetime) -> datetime:
        """The beginning of the period in which the moment lies."""
        hour = moment.replace(minute=0, second=0, microsecond=0)
        match self:
            case TagPeriod.HOURLY:
                return hour
            case TagPeriod.DAILY:
                return hour.replace(hour=0)
            case TagPeriod.MONTHLY:
                return hour.replace(day=1, hour=0)

    def before(self, start: datetime) -> datetime:
        """The beginning of the period before the one that begins then."""
        return self.start_of(start - timedelta(microseconds=1))

    def after(self, start: datetime) -> datetime:
        """The beginning of the period after the one that begins then."""
        days = {TagPeriod.HOURLY: 0, TagPeriod.DAILY: 1, TagPeriod.MONTHLY: 31}[self]
        return self.start_of(start + timedelta(days=days, hours=1 if self is TagPeriod.HOURLY else 0))


@dataclass(frozen=True, slots=True)
class TagConfig:
    """The properties of a table for automatic tags, and the zone in which their periods begin."""

    enabled: bool = declared("tag.auto-create.enabled", "false", boolean)
    period: TagPeriod = declared(
        "tag.auto-create.trigger.period", "daily", one_of({tag_period.value: tag_period for tag_period in TagPeriod})
    )
    offset: timedelta = declared("tag.auto-create.trigger.offset.minutes", "0", minutes)
    #: 0: however late the snapshot comes.
    max_delay: timedelta = declared("tag.auto-create.trigger.max-delay.minutes", "60", minutes)
    #: None: the period's own.
    pattern: DatePattern | None = declared(
        "tag.auto-create.tag-format", "", lambda text: DatePattern(text) if text else None
    )
    #: None: the tag is kept for ever.
    max_age: timedelta | None = declared("tag.auto-create.max-age-ms", "-1", lambda text: interval(text) or None)
    zone: ZoneInfo = UTC  # that of `MaintenanceConfig`

    @property
    def max_age_ms(self) -> int | None:
        """None: the tag is kept for ever."""
        return None if self.max_age is None else self.max_age // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TagVerdict:
    """Whether to create a tag now, and why or why not; `due_at`: when the next one may be due."""

    reason: str
    due_at: datetime
    name: str = ""
    snapshot_id: int | None = None  # None: there is nothing to tag now


def evaluate_tag(
    config: TagConfig, now: datetime, history: Sequence[SnapshotFacts], refs: Collection[str]
) -> TagVerdict:
    """The tag of the period that ended last, if it is missing and a snapshot fits.

    `history` is main's, in any order; `refs` are the names of all branches and tags. The tag of a period is set on the
    first snapshot committed after the period and the offset; not if that is more than `max_delay` later, so that a tag
    never names a much later state.
    """
    # Local wall-clock times are compared, as by Java's LocalDateTime.
    local = now.astimezone(config.zone).replace(tzinfo=None)
    start = config.period.start_of(local - config.offset)
    name = (config.pattern or DatePattern(config.period.pattern)).format(config.period.before(start))
    due_at = _moment(config.period.after(start) + config.offset, config.zone)
    trigger = _moment(start + config.offset, config.zone)
    if name in refs:
        return TagVerdict(f"tag {name} exists", due_at, name)
    since = [snapshot_facts for snapshot_facts in history if snapshot_facts.committed_at >= trigger]
    if not since:
        return TagVerdict(f"no snapshot was committed since {trigger:%Y-%m-%d %H:%M} for tag {name}", due_at, name)
    first = min(since, key=lambda snapshot: (snapshot.committed_at, snapshot.sequence_number))
    late = first.committed_at - trigger
    if timedelta(0) < config.max_delay < late:
        return TagVerdict(
            f"the first snapshot for tag {name} came {_minutes(late)} min after its time, "
            f"more than {_minutes(config.max_delay)} min",
            due_at,
            name,
        )
    return TagVerdict(f"tag {name} is missing", due_at, name, first.snapshot_id)


def _moment(local: datetime, zone: ZoneInfo) -> datetime:
    return local.replace(tzinfo=zone)


def _minutes(span: timedelta) -> int:
    return span // timedelta(minutes=1)
