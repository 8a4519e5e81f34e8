"""Orphan files and files that are due to be deleted; on large tables both by tasks of optimizers."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby, islice
from operator import attrgetter

from amoro_core.actions.action_api import ActionDefaults, Plan, PlannedTask, PlanningContext, Request, TriggerVerdict
from amoro_core.documents.formatting import format_bytes, format_count, many
from amoro_core.errors import CatalogUnavailable, CheckFailed, InvalidArgument
from amoro_core.files.storage.inventory import inventory, keys_in_ranges, table_uuids
from amoro_core.formats.ports import AnyTable, Role, Searchable, Sweepable
from amoro_core.maintenance.manifests import count_files, is_large
from amoro_core.maintenance.orphans import (
    AFTER_THE_END,
    BEYOND,
    LEAST_AGE,
    SWITCH,
    OrphanConditions,
    OrphanConfig,
    ReferencedFiles,
    Search,
    SearchResult,
    TableLocations,
    breaker,
    by_place,
    is_below,
    is_in_flight,
    outermost,
    refuse_shared,
)
from amoro_core.maintenance.trash import is_in_trash
from amoro_core.model.maintenance import Condemned, DueBatch, Ended, FileKind, KeyRange, Options, Removal, StoredFile
from amoro_core.model.paths import is_within, key_in_place, path_aliases
from amoro_core.model.processes import STORAGE, Figure, ProcessContext, Receipt, TaskResult
from amoro_core.model.properties import parse_into
from amoro_core.model.task_payload import DELETE, LIST, Work
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.protocol.codec import from_us, milliseconds, to_us
from amoro_core.scan.live_files import runs_within

#: Approximate number of known files of a task that lists.
FILES_OF_A_LIST_TASK = 50_000
MOST_LIST_TASKS = 500
#: Maximum of orphans that a task reports; the rest is counted, and found by the next process.
MOST_CANDIDATES = 10_000


def list_tasks(
    table: Searchable,
    ground: TableLocations,
    places: Sequence[str],
    terms: OrphanConditions,
    file_count: int,
    file_list: str = "",
) -> tuple[tuple[PlannedTask, ...], Mapping[str, bytes]]:
    """The tasks that list files below the locations, and the blobs that they fetch.

    With an inventory they read it instead, each those of its files that lie in its range. Raises like
    `Searchable.named`.
    """
    cuts = _cuts(table.sampled(), min(MOST_LIST_TASKS, -(-file_count // FILES_OF_A_LIST_TASK)))
    columns = {
        pb.HASH_USE_NEEDED: keys_in_ranges((*terms.around.paths, *terms.in_flight), cuts),
        pb.HASH_USE_CONDEMNED: keys_in_ranges(terms.around.condemned, cuts),
    }
    common = _common(table, ground, terms)
    common.inventory = file_list
    tasks, blobs = list[PlannedTask](), dict[str, bytes]()
    for at, named in enumerate(table.named_in_ranges(cuts)):
        within = KeyRange(cuts[at - 1] if at else "", cuts[at] if at < len(cuts) else "")
        work, content = _of_range(common, ground, places, within), bytearray()
        hashes = [(pb.HASH_USE_NAMED, place, keys) for place, keys in sorted(named.items())]
        hashes += [(use, ("", ""), ranges[at]) for use, ranges in columns.items() if at in ranges]
        for use, (scheme, authority), keys in hashes:
            work.columns.add(use=use, scheme=scheme, authority=authority, count=len(keys))
            content += keys.astype("<u8").tobytes()
        sha256 = hashlib.sha256(content).hexdigest()
        work.blob.CopyFrom(pb.Blob(sha256=sha256, size_bytes=len(content)))
        blobs[sha256] = bytes(content)
        payload = work.SerializeToString(deterministic=True)
        tasks.append(PlannedTask(Work(LIST, payload), cost=0, partition="", input_files=0, input_bytes=0))
    return tuple(tasks), blobs


def gathered(search: Search, results: Iterable[TaskResult]) -> None:
    """Pass the tasks' findings to the search. Raises CheckFailed for results that contradict themselves or the work."""
    files = size = without_time = 0
    missing, counts = set[str](), dict[str, int]()
    for result in results:
        work, output = pb.ListWork.FromString(result.input), pb.ListOutput.FromString(result.output)
        files, size, without_time = files + output.files, size + output.bytes, without_time + output.without_time
        missing |= set(work.must_be_listed) - set(output.seen)
        for reason, count in (*output.kept.items(), (BEYOND, output.more_files)):
            counts[reason] = counts.get(reason, 0) + count
        search.found.beyond_bytes += output.more_bytes
        for place, page in _by_place(result.number, work, output):
            search.see(place, page)
    total = search.found
    total.files, total.bytes, total.without_time, total.unseen = files, size, without_time, missing
    total.kept.update({reason: count for reason, count in counts.items() if count})


def _cuts(paths: Iterable[str], ranges: int) -> list[str]:
    """The cut points of `ranges` ranges with about equal numbers of paths."""
    keys = sorted({spelling for path in paths for spelling in path_aliases(path)})
    return sorted({keys[len(keys) * at // ranges] for at in range(1, ranges)}) if keys else []


def _common(table: Searchable, ground: TableLocations, terms: OrphanConditions) -> pb.ListWork:
    # Files of processes that ended earlier are old enough by their own time.
    since = terms.now - terms.age - terms.start_to_close - AFTER_THE_END
    return pb.ListWork(
        locations=pb.Locations(location=ground.location, readable=ground.readable, writable=ground.writable),
        table_uuid=table.facts.uuid,
        metadata_place=ground.metadata_place,
        partition_fields=ground.partition_fields,
        same_schemes=ground.same_schemes,
        same_authorities=ground.same_authorities,
        now_us=to_us(terms.now),
        age_ms=milliseconds(terms.age),
        task_limit_ms=milliseconds(terms.start_to_close),
        active=sorted(terms.around.active),
        ended={process_id: to_us(at) // 1000 for process_id, at in terms.around.ended.items() if at > since},
        most_candidates=MOST_CANDIDATES,
    )


def _of_range(common: pb.ListWork, ground: TableLocations, places: Sequence[str], within: KeyRange) -> pb.ListWork:
    work = pb.ListWork()
    work.CopyFrom(common)
    work.after, work.until = within.after, within.until
    work.places.extend(place for place in places if within.meets(key_in_place(place)))
    work.must_be_listed.extend(place for place in ground.must_be_listed if within.holds(key_in_place(place)))
    return work


def _by_place(number: int, work: pb.ListWork, output: pb.ListOutput) -> Iterator[tuple[str, Sequence[StoredFile]]]:
    """The candidates of a task below each of its locations. Raises CheckFailed for one outside of them."""
    within, rest = KeyRange(work.after, work.until), len(output.candidates)
    here = [
        StoredFile(file.path, file.size_bytes, from_us(file.modified_us) if file.HasField("modified_us") else None)
        for file in output.candidates
        if within.holds(key_in_place(file.path))
    ]
    for place, page in by_place(work.places, here):
        rest -= len(page)
        yield place, page
    if rest:
        raise CheckFailed(f"task {number} names {rest} files that lie elsewhere than it was to list")


CLEAN_ORPHANS = "clean-orphan-files"
#: Maximum of files listed in the preview.
_NAMED = 10_000


class CleanOrphanFiles(ActionDefaults):
    """The action that condemns files which no snapshot references and nothing needs."""

    name = CLEAN_ORPHANS
    configuration = OrphanConfig
    lane = STORAGE
    roles = frozenset({Role.READ, Role.SEARCH, Role.SWEEP})
    every = timedelta(days=1)
    switch = SWITCH
    needs_gc = True

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """The present orphan files. Raises InvalidArgument for invalid options; TableRefused("shared-location",
        "authority"); CatalogUnavailable for an implausible listing."""
        inputs = _search_inputs(table, situation, request.options)
        if not request.is_preview and is_large(table.snapshots()):  # a preview starts nothing
            return self._listing(table, inputs, request.options.file_list)
        search = Search(inputs.ground, table.named(), inputs.terms)
        for place, page in _pages(table, inputs.places, request.options):
            search.see(place, page)
        _open_metadata(table, search)
        plan = self._condemning(table, search.end(), inputs)
        return TriggerVerdict(bool(plan.condemned), plan.reason), plan if plan.condemned else None

    def gathered(self, table: AnyTable, situation: PlanningContext, case: ProcessContext, options: Options) -> Plan:
        """The tasks' findings, evaluated with the table's present surroundings. Raises CheckFailed, and like `plan`."""
        inputs = _search_inputs(table, situation, options)
        # The tasks have checked that these files exist, as of the plan.
        nowhere = ReferencedFiles(lambda paths: [frozenset()] * len(paths))
        search = Search(replace(inputs.ground, must_be_listed=()), nowhere, inputs.terms)
        gathered(search, case.results)
        _open_metadata(table, search)
        try:
            return self._condemning(table, search.end(), inputs)
        except CatalogUnavailable as error:  # here the tasks' listings are implausible
            raise CheckFailed(error.message, hint=error.hint) from error

    def receipt(self, case: ProcessContext) -> Receipt:
        """The number of condemned files, as planned."""
        plan = case.detail
        figures = [Figure("condemned_files", plan["files"], "files"), Figure("condemned_bytes", plan["bytes"], "bytes")]
        words = f"marked {many(plan['files'], 'orphan file')} ({format_bytes(plan['bytes'])}) for deletion"
        if more := plan.get("more_files"):
            figures.append(Figure("more_files", more, "files"))
            words += f"; {format_count(more)} more left for the next run"
        return Receipt.brief(words, case.process.snapshot_id, tuple(figures))

    def tidy(self, table: AnyTable, case: ProcessContext) -> int:
        """Remove folders that have been empty for as long as an orphan is old, where folders are no mere names."""
        age = timedelta(seconds=case.detail["age_s"])
        ground, before = table.ground(), case.process.created_at - age
        access, places = table.access(), (place for place in ground.places if place != ground.metadata_place)
        return sum(access.remove_empty_folders(place, before) for place in places)

    def _listing(self, table: AnyTable, inputs: "_SearchInputs", file_list: str) -> tuple[TriggerVerdict, Plan]:
        if file_list:
            next(iter(inventory(table.access(), file_list)), None)  # an unreadable one is refused immediately
        count = count_files(table.snapshots())
        tasks, blobs = list_tasks(table, inputs.ground, inputs.places, inputs.terms, count, file_list)
        source = f"go by {file_list}" if file_list else "list what lies beside them"
        return self.planned(
            table,
            f"{many(count, 'known file')}: {many(len(tasks), 'task')} to {source}",
            {"files": 0, "bytes": 0, "age_s": inputs.terms.age.total_seconds()},
            tasks=tasks,
            commits=False,
            keep=inputs.config.trash_keep,
            document={"known_files": count, "tasks": len(tasks)},
            blobs=blobs,
        )

    def _condemning(self, table: AnyTable, seen: SearchResult, inputs: "_SearchInputs") -> Plan:
        result = replace(seen, orphans=_still_files(table, seen.orphans))
        counts = ", ".join(f"{count} {_KEPT.get(reason, reason)}" for reason, count in sorted(result.kept.items()))
        size = sum(orphan.size_bytes or 0 for orphan in result.orphans)
        figures = {"files": len(result.orphans), "bytes": size}
        more = {"more_files": result.kept[BEYOND], "more_bytes": result.beyond_bytes} if result.kept[BEYOND] else {}
        reason = f"{many(len(result.orphans), 'orphan')} among {many(result.files, 'file')}"
        if not result.orphans:
            reason = f"no orphans among {many(result.files, 'file')}{counts and f'; kept: {counts}'}"
        return self.planned(
            table,
            reason,
            {**figures, **more, "age_s": inputs.terms.age.total_seconds()},
            commits=False,
            held=breaker(result),
            measures=figures,
            condemned=tuple(result.orphans),
            keep=inputs.config.trash_keep,
            document=_document(result, inputs),
        )[1]


@dataclass(frozen=True, slots=True)
class _SearchInputs:
    """The inputs of a search."""

    config: OrphanConfig
    ground: TableLocations
    places: tuple[str, ...]  # that are listed
    terms: OrphanConditions


def _search_inputs(table: AnyTable, situation: PlanningContext, options: Options) -> _SearchInputs:
    config = parse_into(OrphanConfig, situation.properties)
    age = _age(config, options)
    ground = table.ground()
    places = _places(ground, options)
    surroundings = situation.around()
    refuse_shared(str(table.facts.identifier), ground, places, situation.neighbours())
    in_flight = table.uncommitted(_in_flight(table, ground, situation.now))
    if options.file_list:
        ground = replace(ground, must_be_listed=())  # an inventory is older
    elif options.locations:
        listed = (path for path in ground.must_be_listed if any(is_below(path, place) for place in places))
        ground = replace(ground, must_be_listed=tuple(listed))
    terms = OrphanConditions(situation.now, age, situation.task_limit, surroundings, frozenset(in_flight))
    return _SearchInputs(config, ground, places, terms)


def _open_metadata(table: AnyTable, search: Search) -> None:
    paths = (file.path for file in search.found.metadata_files)
    search.opened(table_uuids(table.access(), paths), table.facts.uuid)


def _age(config: OrphanConfig, options: Options) -> timedelta:
    if options.older_than is None:
        return config.age
    if options.older_than < LEAST_AGE:
        raise InvalidArgument(
            f"--older-than {options.older_than} is less than a day: files of commits under way would be taken for "
            "orphans",
            hint="The least is --older-than 1d.",
        )
    return options.older_than


def _places(ground: TableLocations, options: Options) -> tuple[str, ...]:
    for place in options.locations:
        if not any(is_within(place, root) for root in ground.writable) or ".." in place.split("/"):
            raise InvalidArgument(
                f"--location {place} is outside the places where files of the table are written",
                hint=f"One below: {', '.join(ground.writable)}",
            )
        if any(is_within(place, root) and is_in_trash(place, root) for root in ground.writable):
            raise InvalidArgument(
                f"--location {place} is a trash: what was moved there is deleted when its time has come",
                hint="`amoro trash list` shows it.",
            )
    return outermost(options.locations) if options.locations else ground.places


def _in_flight(table: AnyTable, ground: TableLocations, now: datetime) -> Iterator[StoredFile]:
    """Flink's manifests that are not committed yet; their location is listed before anything else."""
    for place in outermost((ground.flink_place, ground.metadata_place)):
        for page in table.access().pages(place):
            yield from (file for file in page if is_in_flight(file, now))


def _pages(table: AnyTable, places: Sequence[str], options: Options) -> Iterator[tuple[str, Sequence[StoredFile]]]:
    """Pages of files, each with the location that was listed."""
    if not options.file_list:
        yield from ((place, page) for place in places for page in table.access().pages(place))
        return
    for page in inventory(table.access(), options.file_list):
        yield from by_place(places, page)


def _still_files(table: AnyTable, orphans: Sequence[Condemned]) -> list[Condemned]:
    """The distinct orphans that are files: stores also list the empty objects of folders."""
    empty = table.access().stat_many(orphan.path for orphan in orphans if not orphan.size_bytes)
    distinct = dict[str, Condemned]()
    for orphan in orphans:
        distinct.setdefault(orphan.path, orphan)
    return [file for file in distinct.values() if file.size_bytes or empty.get(file.path) is not None]


_KEPT = {"condemned already": "already marked for deletion"}  # reasons in words, where the public key is another


def _document(result: SearchResult, inputs: _SearchInputs) -> dict[str, object]:
    return {
        "orphan_files_count": len(result.orphans),
        "bytes": sum(orphan.size_bytes or 0 for orphan in result.orphans),
        "listed_files": result.files,
        "listed_bytes": result.bytes,
        "older_than_seconds": round(inputs.terms.age.total_seconds()),
        "kept": dict(sorted(result.kept.items())),
        "orphan_files": [
            {
                "orphan_file_location": file.path,
                "bytes": file.size_bytes,
                "kind": file.kind.value,
                "modified_at": None if file.modified_at is None else file.modified_at.isoformat(),
                "reason": file.reason,
            }
            for file in result.orphans[:_NAMED]
        ],
    }


#: Files of a task that deletes.
FILES_OF_A_DELETE_TASK = 10_000
#: Maximum of tasks that delete; the rest is deleted by the next process.
MOST_DELETE_TASKS = 50
#: How long after its ack an optimizer may still begin: the guard's answer is not valid for longer.
BEGIN_WITHIN = timedelta(minutes=10)

_ENDED = {
    pb.DELETE_OUTCOME_DELETED: Ended.DELETED,
    pb.DELETE_OUTCOME_ABSENT: Ended.ABSENT,
    pb.DELETE_OUTCOME_CHANGED: Ended.CHANGED,
}
_ORDER = tuple(FileKind)


def delete_tasks(table: Sweepable, situation: PlanningContext) -> tuple[PlannedTask, ...]:
    """The tasks that delete due files: a kind of file begins once all files of earlier kinds are processed."""
    # A task has batches of one kind.
    tasks = (
        some
        for _, of_kind in groupby(situation.due_batches(), attrgetter("kind"))
        for some in runs_within(of_kind, lambda batch: len(batch.files), FILES_OF_A_DELETE_TASK)
    )
    chosen = list(islice(tasks, MOST_DELETE_TASKS))
    at_once = max(1, min(len(chosen), situation.capacity.threads))
    reach = table.reach()
    work = pb.DeleteWork(
        locations=pb.Locations(location=reach.location, readable=reach.readable, writable=reach.writable),
        begin_within_ms=milliseconds(BEGIN_WITHIN),
        files_per_second=max(1, situation.delete_rate // at_once),
    )
    return tuple(_task(work, some) for some in chosen)


def _task(common: pb.DeleteWork, batches: Sequence[DueBatch]) -> PlannedTask:
    work = pb.DeleteWork()
    work.CopyFrom(common)
    for batch in batches:
        _add(work, batch.batch_id, batch.files)
    return PlannedTask(
        Work(DELETE, work.SerializeToString(deterministic=True)),
        cost=0,
        partition=batches[0].kind.value,
        input_files=sum(len(batch.files) for batch in batches),
        input_bytes=sum(file.size_bytes or 0 for batch in batches for file in batch.files),
        stage=_ORDER.index(batches[0].kind),
    )


def _add(work: pb.DeleteWork, batch_id: int, files: Iterable[Condemned]) -> None:
    batch = work.batches.add(batch_id=batch_id)
    for file in files:
        modified = None if file.modified_at is None else to_us(file.modified_at)
        batch.files.add(path=file.path, size_bytes=file.size_bytes, modified_us=modified)


EMPTY_TRASH = "empty-trash"


class EmptyTrash(ActionDefaults):
    """Deletes condemned files; `services.file_deletion` does it, batch after batch."""

    name = EMPTY_TRASH
    lane = STORAGE
    roles = frozenset({Role.READ, Role.SWEEP})
    every = timedelta(hours=1)
    switch = ""
    needs_gc = True
    sweeps = True

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """Always on: the decision was made when the files were condemned."""
        return True

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """The plan for files that are due. Raises TableRefused for a trash to which files can't be moved."""
        due = situation.around().due
        if not due.batches:
            return TriggerVerdict(False, "no file in the trash is due to be deleted"), None
        trash = table.trash()
        words = f"{many(due.files, 'file')} in the trash ({format_bytes(due.bytes)}) due to be deleted"
        if trash is not None:
            words += f", or to be moved to {trash.root}"
        document = {"files": due.files, "bytes": due.bytes, "batches": due.batches}
        # A move is cheap, and is done here whatever the size of the table.
        tasks = delete_tasks(table, situation) if trash is None and is_large(table.snapshots()) else ()
        return self.planned(table, words, tasks=tasks, commits=False, document=document)

    def batches_of(self, payload: bytes) -> Mapping[int, tuple[str, ...]]:
        """The files that a task deletes, by batch."""
        work = pb.DeleteWork.FromString(payload)
        return {batch.batch_id: tuple(delete.path for delete in batch.files) for batch in work.batches}

    def narrowed(self, payload: bytes, left: Mapping[int, Sequence[Condemned]]) -> bytes:
        """The same work for these batches alone, each with these files."""
        work = pb.DeleteWork.FromString(payload)
        del work.batches[:]
        for batch_id, files in left.items():
            _add(work, batch_id, files)
        return work.SerializeToString(deterministic=True)

    def removals_of(self, output: bytes) -> Mapping[str, Removal]:
        """The outcome of each file, as reported by the task; an unknown outcome counts as failed."""
        reported = pb.DeleteOutput.FromString(output).files
        return {file.path: Removal(_ENDED.get(file.outcome, Ended.FAILED), file.why) for file in reported}
