"""Documents of tables, their properties, files and blockers."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from amoro_cli.list_options import Column, Listing
from amoro_cli.output import Block, Document, Grid, Pairs, with_value
from amoro_core.documents.formatting import format_bytes, format_count, format_time, many, short_id
from amoro_core.documents.json_documents import encode, encode_all
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.tables import ICEBERG, OptimizingStatus, TableState
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal_pb
from amoro_core.protocol import snapshots_pb2 as snapshots_pb

#: Schema amoro.blockers/v1: `blockers`, `total`, `next`. The names are ids.
BLOCKERS: Listing[pb.Blocker] = Listing(
    (
        Column("BLOCKER", lambda blocker: blocker.blocker_id, short_id),
        Column("TABLE", lambda blocker: blocker.table),
        Column("BLOCKS", lambda blocker: _blocks(blocker)),
        Column("EXPIRES", lambda blocker: blocker.expires_ms, format_time),
        Column("REASON", lambda blocker: blocker.reason or "-"),
    ),
    spare=("BLOCKS",),
    elastic="REASON",
    schema="amoro.blockers/v1",
    name=lambda blocker: blocker.blocker_id,
    nothing="Nothing is blocked.",
)


def blocker_detail(blocker: pb.Blocker) -> Document:
    """Schema amoro.blocker/v1: the fields of the blocker."""
    pairs = with_value(
        ("blocker", blocker.blocker_id),
        ("table", blocker.table),
        ("blocks", ", ".join(blocker.operations)),
        ("where", blocker.condition),
        ("expires", format_time(blocker.expires_ms)),
        ("reason", blocker.reason),
    )
    hold_on = f"It expires by itself. To keep it, renew it in time: amoro table renew {blocker.blocker_id}"
    return Document("amoro.blocker/v1", encode(blocker), (blocker.blocker_id,), (Pairs(pairs), hold_on))


def blocker_released(blocker: pb.Blocker) -> Document:
    """Schema amoro.blocker/v1: the fields of the released blocker."""
    text = f"Blocker {blocker.blocker_id} is released; {blocker.table} is free."
    return Document("amoro.blocker/v1", encode(blocker), (blocker.blocker_id,), (text,))


_MANY_IN_LITTLE = (
    "Most files are fragments, but they hold so little data that reading them costs almost nothing: that is why "
    "the score is high."
)
_NOT_REGISTERED = "not yet: no coordinator has listed it, so its catalog was asked"
_COARSE = ": minor copied them; major or full encodes them"


def _evaluated(table: pb.Table, figure: int) -> int:
    """A figure of an evaluated table; -1 before its first evaluation."""
    return figure if table.health_score >= 0 else -1


def _of_files(table: pb.Table) -> tuple[int, ...]:
    """Small files and all files; () before the first evaluation."""
    small = table.files.fragment_files + table.files.undersized_files
    return (small, table.files.data_files) if table.health_score >= 0 else ()


def _small(small: int, files: int) -> str:
    return f"{format_count(small)} of {format_count(files)}"


def _saved(files: int) -> str:
    return many(files, "file") if files else "-"


def _delete_files(files: pb.FileSummary | journal_pb.PartitionDigest) -> int:
    return files.equality_delete_files + files.position_delete_files


#: Schema amoro.tables/v1: `tables`, `total`, `next`.
TABLES: Listing[pb.Table] = Listing(
    (
        Column("TABLE", lambda table: table.table),
        Column("STATE", lambda table: table.state),
        Column("SMALL", lambda table: _of_files(table), lambda counts: _small(*counts) if counts else "-", right=True),
        Column("DELETES", lambda table: _evaluated(table, _delete_files(table.files)), format_count, right=True),
        Column("SAVES", lambda table: _evaluated(table, table.saved_files), _saved, right=True),
        Column("SIZE", lambda table: _evaluated(table, table.files.data_bytes), format_bytes, right=True),
        Column("OPTIMIZED", lambda table: "yes" if table.enabled else "no"),
        Column("LAST OPTIMIZED", lambda table: table.last_optimized_ms, format_time),
        Column("STATUS", lambda table: table.status, shown=False),
        Column("FILES", lambda table: _evaluated(table, table.files.data_files), format_count, True, shown=False),
        Column("HEALTH", lambda table: table.health_score, right=True, shown=False),
        Column("FAILURE", lambda table: table.failure_code or "-", shown=False),
    ),
    spare=("LAST OPTIMIZED", "OPTIMIZED", "SIZE", "SAVES"),
    elastic="TABLE",
    schema="amoro.tables/v1",
    name=lambda table: table.table,
    nothing="No tables are known. `amoro up` finds those of all catalogs, and `amoro plan` looks at them once; "
    "`amoro catalog list` shows the catalogs, `amoro catalog add` adds one.",
)
#: Schema amoro.files/v1: `table`, `files`, `total`, `snapshot_id`, `next`. The names are paths.
FILES: Listing[pb.TableFile] = Listing(
    (
        Column("PARTITION", lambda file: file.partition or "-"),
        Column("CONTENT", lambda file: f"{file.content}, dangling" if file.dangling else file.content),
        Column("RECORDS", lambda file: file.records, format_count, right=True),
        Column("SIZE", lambda file: file.bytes, format_bytes, right=True),
        Column("SEQUENCE", lambda file: file.sequence_number, right=True),
        Column("DELETES", lambda file: file.deletes if file.content == "data" else -1, format_count, right=True),
        Column("PATH", lambda file: file.path),
    ),
    spare=("SEQUENCE", "DELETES", "RECORDS"),
    elastic="PATH",
    schema="amoro.files/v1",
    name=lambda file: file.path,
    nothing="No files.",
)
#: Schema amoro.snapshots/v1: `table`, `snapshots`, `total`, `next`. The names are snapshot ids.
SNAPSHOTS: Listing[pb.Snapshot] = Listing(
    (
        Column("SNAPSHOT", lambda item: item.snapshot_id, right=True),
        Column("PARENT", lambda item: item.parent_snapshot_id or -1, right=True),
        Column("SEQUENCE", lambda item: item.sequence_number, right=True),
        Column("COMMITTED", lambda item: item.committed_ms, format_time),
        Column("OPERATION", lambda item: item.operation or "-"),
        Column("REFS", lambda item: ", ".join(item.refs) or "-"),
        Column("PROCESS", lambda item: item.summary.get(PROCESS_ID, "-")),
    ),
    spare=("PARENT", "SEQUENCE", "REFS"),
    elastic="PROCESS",
    schema="amoro.snapshots/v1",
    name=lambda item: str(item.snapshot_id),
    nothing="No snapshots.",
)


#: Columns that the coordinator sorts by, and what it calls them.
_SORTED = {
    "table": "name", "status": "status", "saves": "saving", "health": "health", "files": "files", "size": "size",
    "small": "small-files", "deletes": "deletes", "last-optimized": "last-optimized",
}  # fmt: skip


def sort_key(sort_by: str) -> tuple[str, str]:
    """The coordinator's sort key and direction for the option --sort-by; ("", ""): it does not sort by that.

    Without the option it is what optimizing would save, most first.
    """
    if not sort_by:
        return "saving", "desc"
    name = sort_by.strip().lower().replace(" ", "-").replace("_", "-")
    key = _SORTED.get(name.removeprefix("-"), "")
    return (key, "desc" if name.startswith("-") else "asc") if key else ("", "")


def table_detail(table: pb.Table) -> Document:
    """Schema amoro.table/v1: the fields of the table."""
    optimized = "yes" if table.enabled else "no"
    format_name = (table.format or ICEBERG).capitalize()
    pairs = (
        ("table", table.table),
        ("state", _state(table)),
        ("optimized", f"{optimized}: {table.enabled_origin}" if table.enabled_origin else optimized),
        *(("blocked", _blocked(item)) for item in table.blockers),
        *(_figures(table) if table.health_score >= 0 else ()),
        *(_service_pairs(table.services) if table.HasField("services") else ()),
        ("group", table.group),
        *with_value(("optimizers", f"none: {table.no_optimizer}" if table.no_optimizer else "")),
        ("last optimized", format_time(table.last_optimized_ms)),
        *with_value(
            ("last failure", table.failure),
            ("late deletes", table.late_deletes),
            ("next try", format_time(table.retry_at_ms) if table.retry_at_ms else ""),
            ("process", table.process_id),
        ),
        ("evaluated", format_time(table.evaluated_ms)),
        ("format", f"{format_name}, version {table.format_version}" if table.format_version else "not known"),
        ("location", table.location or "-"),
        ("uuid", table.table_uuid or "-"),
        *with_value(("registered", "" if table.table_id else _NOT_REGISTERED)),
    )
    newest = table.services.timeline[:_NEWEST]
    entries = [(entry.time, entry.action, entry.state, entry.completed or "-") for entry in newest]
    timeline = (Grid(("INSTANT", "ACTION", "STATE", "COMPLETED"), tuple(entries)),) if entries else ()
    blocks: tuple[Block, ...] = (Pairs(pairs), *timeline)
    return Document("amoro.table/v1", encode(table), (table.table,), blocks)


#: Entries of a timeline that are shown.
_NEWEST = 20


def _service_pairs(services: pb.TableServices) -> tuple[tuple[str, str], ...]:
    """What the table consists of, and how far its format's own engine is with it."""
    kinds = [f"{format_count(kind.files)} {kind.kind}, {format_bytes(kind.bytes)}" for kind in services.kinds]
    old = f"{many(services.superseded_files, 'file')}, {format_bytes(services.superseded_bytes)}"
    by = ", ".join(services.partition_columns)
    return (
        ("columns", ", ".join(f"{column.name} {column.type}" for column in services.columns) or "-"),
        ("partitions", f"{format_count(services.partitions)} by {by}" if by else "none"),
        ("files", "; ".join(kinds) or "none"),
        *with_value(("superseded", old if services.superseded_files else "")),
        ("since compaction", many(services.since_compaction, "commit")),
        *(("pending", f"{entry.action} {entry.time}, {entry.state}") for entry in services.pending),
    )


def _state(table: pb.Table) -> str:
    """The state, since when where that is known, and why."""
    state, since_ms = table.state or table.status, 0
    match state:
        case TableState.FAILING:
            state, since_ms = f"failing with {table.failure_code}".removesuffix(" with "), table.failing_since_ms
        case TableState.OPTIMIZING:
            state, since_ms = table.status.replace("_", " "), table.status_since_ms
        case TableState.REFUSED:
            since_ms = table.status_since_ms
    since = f" since {format_time(since_ms)}" if since_ms else ""
    is_blocked = any(not blocker.condition for blocker in table.blockers)
    waits = "a blocker to end" if is_blocked else "an optimizer" if table.no_optimizer else "its plan"
    why = (table.status_reason, f"it waits for {waits}" if table.status == OptimizingStatus.PENDING else "")
    return ": ".join(filter(None, (f"{state}{since}", "; ".join(filter(None, why)))))


def _blocks(blocker: pb.Blocker) -> str:
    return ", ".join(blocker.operations) + (f" where {blocker.condition}" if blocker.condition else "")


def _blocked(blocker: pb.Blocker) -> str:
    until = f"{_blocks(blocker)} until {format_time(blocker.expires_ms)}"
    return f"{until}: {blocker.reason}" if blocker.reason else until


def table_health(answer: pb.TableHealth) -> Document:
    """Schema amoro.health/v1: `table`, `health_score`, the points of its three parts, `files`, `reason`."""
    files = answer.files
    small = f"{many(files.fragment_files, 'fragment')}, {format_count(files.undersized_files)} undersized"
    share, largest = f"{answer.fragmentation:.0%}", format_bytes(answer.fragment_bytes)
    weight = "below 1%" if 0 < answer.weight < 0.01 else f"{answer.weight:.0%}"
    charged = (
        f"share of its faults charged to a partition; in full from {format_count(answer.full_weight_files)} files and "
        f"{format_bytes(answer.target_bytes)} on"
    )
    pairs = (
        ("table", answer.table),
        ("health", f"{health(answer.health_score)}, as Amoro scores it"),
        ("fragmentation", f"{share} by count: {fragments(files)}, {largest} or less"),
        ("small files", f"{answer.small_files}/40: {small} of {many(files.data_files, 'file')}"),
        ("small row groups", f"{coarse(files)}{_COARSE if files.coarse_files else ''}"),
        ("equality deletes", f"{answer.equality_deletes}/40: {many(files.equality_delete_files, 'file')}"),
        ("position deletes", f"{answer.position_deletes}/20: {many(files.position_delete_files, 'file')}"),
        ("weight", f"{weight}: {charged}"),
        ("evaluation", answer.reason),
    )
    blocks = (Pairs(pairs), *((_MANY_IN_LITTLE,) if _is_many_in_little(answer) else ()))
    return Document("amoro.health/v1", encode(answer), (answer.table,), blocks)


def fragments(files: pb.FileSummary) -> str:
    """How many data files are fragments, in words."""
    verb = "is a fragment" if files.fragment_files == 1 else "are fragments"
    return f"{format_count(files.fragment_files)} of {many(files.data_files, 'data file')} {verb}"


def coarse(files: pb.FileSummary) -> str:
    """The files of target size that minor only copied, in words."""
    if not files.coarse_files:
        return "no file of target size"
    return f"{many(files.coarse_files, 'file')} of target size, {format_bytes(files.coarse_bytes)}"


def _is_many_in_little(answer: pb.TableHealth) -> bool:
    several = answer.files.fragment_files > 1
    return several and answer.fragmentation > 0.5 and answer.health_score > 80 and answer.weight < 0.5


def _figures(table: pb.Table) -> tuple[tuple[str, str], ...]:
    files, size = table.files, format_bytes(table.saved_bytes)
    return (
        ("snapshot", str(table.snapshot_id) if table.snapshot_id else "none yet"),
        ("files", f"{format_count(files.data_files)}, {format_bytes(files.data_bytes)}"),
        ("small", f"{fragments(files)}, {format_count(files.undersized_files)} undersized"),
        *with_value(("saves", f"{_saved(table.saved_files)}, {size} to rewrite" if table.saved_bytes else "")),
        *((("row groups", f"small in {coarse(files)}"),) if files.coarse_files else ()),
        ("deletes", _deletes(table)),
        ("records", f"{format_count(files.records)}, deletes not subtracted"),
    )


def health(score: int) -> str:
    """The health score; −1 means not known."""
    return f"{score}/100" if score >= 0 else "not evaluated yet"


def _deletes(table: pb.Table) -> str:
    files = table.files
    dangling = f", {format_count(files.dangling_delete_files)} dangling" if files.dangling_delete_files else ""
    return (
        f"{format_count(files.equality_delete_files)} equality, {format_count(files.position_delete_files)} position, "
        f"{format_bytes(files.delete_bytes)}{dangling}"
    )


_UNKNOWN = "unknown"  # the origin of a property that has no effect


def settings_document(settings: Sequence[pb.Setting], origin: bool) -> Document:
    """Schema amoro.settings/v1: `settings` with `key`, `value`, `origin`; as text, origins only on request."""
    names = tuple(setting.key for setting in settings)
    return Document("amoro.settings/v1", {"settings": encode_all(settings)}, names, (_grid(settings, origin),))


def properties_document(answer: pb.GetTablePropertiesResponse) -> Document:
    """Schema amoro.properties/v1: `table`, `properties` with `key`, `value`, `origin`, `default`; `enabled`,
    `enabled_origin`."""
    names = tuple(item.key for item in answer.properties)
    optimized = f"optimized: {'yes' if answer.enabled else 'no'}, {answer.enabled_origin}"
    blocks: tuple[Block, ...] = (_grid(answer.properties, True), *_unknown(answer.properties), optimized)
    return Document("amoro.properties/v1", encode(answer), names, blocks)


def changed_properties(answer: snapshots_pb.ChangedProperties, dry_run: bool) -> Document:
    """Schema amoro.changed-properties/v1: `table`, `changes` with `key`, `before`, `after`; `is_done`."""
    rows = tuple(
        (item.key, item.before if item.HasField("before") else "-", item.after if item.HasField("after") else "-")
        for item in answer.changes
    )
    text = "These properties would change." if dry_run else "The properties are changed by a commit to the table."
    blocks = (
        (Grid(("KEY", "BEFORE", "AFTER"), rows), text) if rows else (f"{answer.table} has these properties already.",)
    )
    return Document("amoro.changed-properties/v1", encode(answer), tuple(row[0] for row in rows), blocks)


def entry_detail(verb: str) -> Callable[[Any], Document]:
    """A view of schema amoro.entry/v1: `table`, `metadata_location`, `is_done`."""

    def view(answer: Any) -> Document:
        rest = f" Its files stay; its last metadata file: {answer.metadata_location}" if verb == "dropped" else ""
        text = f"Table {answer.table} {'is' if answer.is_done else 'would be'} {verb}.{rest}"
        return Document("amoro.entry/v1", encode(answer), (answer.table,), (text,))

    return view


def _unknown(properties: Sequence[pb.Setting]) -> Iterator[str]:
    """Unknown properties, with a suggestion for each by the key without the prefix that all share."""
    effective = [item.key.partition(".")[2] for item in properties if item.origin != _UNKNOWN]
    for key in (item.key for item in properties if item.origin == _UNKNOWN):
        prefix, dot, tail = key.partition(".")
        close = difflib.get_close_matches(tail, effective, n=1, cutoff=0.8)
        yield f"{key} is not known here{f': did you mean {prefix}{dot}{close[0]}?' if close else '.'}"


def _grid(settings: Sequence[pb.Setting], origin: bool) -> Grid:
    header = ("KEY", "VALUE", "ORIGIN") if origin else ("KEY", "VALUE")
    rows = tuple((item.key, item.value or "-", item.origin)[: len(header)] for item in settings)
    return Grid(header, rows, elastic=header[-1])


_SIZES: Listing[journal_pb.SizeBin] = Listing(
    (
        Column("FROM", lambda item: item.from_bytes, format_bytes, right=True),
        Column("DATA FILES", lambda item: item.data_files, format_count, right=True),
        Column("BYTES", lambda item: item.data_bytes, format_bytes, right=True),
        Column("POSITION DELETES", lambda item: item.position_delete_files, format_count, right=True),
        Column("EQUALITY DELETES", lambda item: item.equality_delete_files, format_count, right=True),
    )
)
_PARTITIONS: Listing[journal_pb.PartitionDigest] = Listing(
    (
        Column("PARTITION", lambda item: item.path or "-"),
        Column("HEALTH", lambda item: item.health, right=True),
        Column("DUE", lambda item: item.due or "-"),
        Column("FILES", lambda item: item.data_files, format_count, right=True),
        Column("SMALL", lambda item: item.small_files, format_count, right=True),
        Column("DELETES", _delete_files, format_count, right=True),
        Column("SIZE", lambda item: item.data_bytes, format_bytes, right=True),
        Column("WHY", lambda item: item.reason),
    ),
    spare=("SIZE", "SMALL"),
    elastic="WHY",
)


def digest_document(digest: journal_pb.TableDigest, partitions: int) -> Document:
    """Schema amoro.digest/v1: the fields of the digest; for people that many partitions. The names are partitions."""
    blocks: list[Block] = [f"The files of {digest.table} were not read yet: it is evaluated at its next refresh."]
    if digest.read_ms:
        pairs = (
            ("table", digest.table),
            ("snapshot", str(digest.snapshot_id) if digest.snapshot_id else "-"),
            ("read", format_time(digest.read_ms)),
            ("target", format_bytes(digest.target_bytes)),
            ("partitions", format_count(digest.partitions_total)),
        )
        used = [row for row in digest.sizes if row.data_files or row.position_delete_files or row.equality_delete_files]
        first = digest.partitions[:partitions]
        blocks = [Pairs(pairs), "", _SIZES.grid(used) if used else "No files."]
        blocks += ["", _PARTITIONS.grid(first)] if first else []
        if digest.partitions_total > len(first):
            blocks.append(f"and {many(digest.partitions_total - len(first), 'more partition')}")
    names = tuple(partition.path for partition in digest.partitions)
    return Document("amoro.digest/v1", encode(digest), names, tuple(blocks))
