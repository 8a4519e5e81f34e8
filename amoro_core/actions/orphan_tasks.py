"""Orphan files of large tables: listed by tasks of optimizers, a range of paths each, and evaluated again together."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from amoro_core.actions.contract import PlannedTask
from amoro_core.errors import CatalogUnavailable, CheckFailed
from amoro_core.files.path_keys import Keys, Place, keys_in_ranges
from amoro_core.formats.upkeep import Searchable
from amoro_core.maintaining.orphans import AFTER_THE_END, BEYOND, Found, Search, Terms
from amoro_core.maintaining.places import Ground, by_place
from amoro_core.model.actions import TaskResult
from amoro_core.model.paths import key_in_place, looser_spellings
from amoro_core.model.stored import KeyRange, StoredFile
from amoro_core.model.work import LIST, Work
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.protocol.times import from_us, milliseconds, to_us

#: Approximate number of known files of a task.
FILES_OF_A_TASK = 50_000
MOST_TASKS = 500
#: Maximum of orphans that a task reports; the rest is counted, and found by the next process.
MOST_CANDIDATES = 10_000


def list_tasks(
    table: Searchable, ground: Ground, places: Sequence[str], terms: Terms, known_files: int, inventory: str = ""
) -> tuple[tuple[PlannedTask, ...], Mapping[str, bytes]]:
    """The tasks that list files below the locations, and the blobs that they fetch.

    With an inventory they read it instead, each those of its files that lie in its range. Raises like
    `Searchable.named`.
    """
    cuts = _cuts(table.sampled(), min(MOST_TASKS, -(-known_files // FILES_OF_A_TASK)))
    columns = {
        pb.HASH_USE_NEEDED: keys_in_ranges((*terms.around.paths, *terms.in_flight), cuts),
        pb.HASH_USE_CONDEMNED: keys_in_ranges(terms.around.condemned, cuts),
    }
    common = _common(table, ground, terms)
    common.inventory = inventory
    tasks, blobs = list[PlannedTask](), dict[str, bytes]()
    for at, named in enumerate(table.named_in_ranges(cuts)):
        within = KeyRange(cuts[at - 1] if at else "", cuts[at] if at < len(cuts) else "")
        work, content = _of_range(common, ground, places, within), bytearray()
        for use, place, keys in _in_range(named, columns, at):
            work.columns.add(use=use, scheme=place[0], authority=place[1], count=len(keys))
            content += keys.astype("<u8").tobytes()
        sha256 = hashlib.sha256(content).hexdigest()
        work.blob.CopyFrom(pb.Blob(sha256=sha256, size_bytes=len(content)))
        blobs[sha256] = bytes(content)
        payload = work.SerializeToString(deterministic=True)
        tasks.append(PlannedTask(Work(LIST, payload), cost=0, partition="", input_files=0, input_bytes=0))
    return tuple(tasks), blobs


def gathered(search: Search, results: Iterable[TaskResult]) -> None:
    """Pass the tasks' findings to the search, which knows the table's present surroundings.

    Raises CheckFailed for results that contradict themselves or their tasks, and for implausible listings.
    """
    files = size = without_time = 0
    missing, kept = set[str](), dict[str, int]()
    for one in results:
        work, said = pb.ListWork.FromString(one.input), pb.ListOutput.FromString(one.output)
        files, size, without_time = files + said.files, size + said.bytes, without_time + said.without_time
        missing |= set(work.must_be_listed) - set(said.seen)
        for reason, count in (*said.kept.items(), (BEYOND, said.more_files)):
            kept[reason] = kept.get(reason, 0) + count
        search.found.beyond_bytes += said.more_bytes
        for place, page in _by_place(one.number, work, said):
            search.see(place, page)
    found = search.found
    found.files, found.bytes, found.without_time, found.unseen = files, size, without_time, missing
    found.kept.update({reason: count for reason, count in kept.items() if count})


def ended(search: Search) -> Found:
    """Like `Search.end`, for files listed by tasks. Raises CheckFailed."""
    try:
        return search.end()
    except CatalogUnavailable as error:
        raise CheckFailed(error.message, hint=error.hint) from error


def _cuts(paths: Iterable[str], ranges: int) -> list[str]:
    """The cut points of `ranges` ranges with about equal numbers of paths."""
    keys = sorted({spelling for path in paths for spelling in looser_spellings(path)})
    return sorted({keys[len(keys) * at // ranges] for at in range(1, ranges)}) if keys else []


def _common(table: Searchable, ground: Ground, terms: Terms) -> pb.ListWork:
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
        ended={one: to_us(at) // 1000 for one, at in terms.around.ended.items() if at > since},
        most_candidates=MOST_CANDIDATES,
    )


def _of_range(common: pb.ListWork, ground: Ground, places: Sequence[str], within: KeyRange) -> pb.ListWork:
    work = pb.ListWork()
    work.CopyFrom(common)
    work.after, work.until = within.after, within.until
    work.places.extend(one for one in places if within.meets(key_in_place(one)))
    work.must_be_listed.extend(one for one in ground.must_be_listed if within.holds(key_in_place(one)))
    return work


def _in_range(
    named: Mapping[Place, Keys], columns: Mapping[pb.HashUse.ValueType, Mapping[int, Keys]], at: int
) -> Iterator[tuple[pb.HashUse.ValueType, Place, Keys]]:
    yield from ((pb.HASH_USE_NAMED, place, keys) for place, keys in sorted(named.items()))
    for use, ranges in columns.items():
        if at in ranges:
            yield use, ("", ""), ranges[at]


def _by_place(number: int, work: pb.ListWork, said: pb.ListOutput) -> Iterator[tuple[str, Sequence[StoredFile]]]:
    """The candidates of a task below each of its locations. Raises CheckFailed for one outside of them."""
    within, left = KeyRange(work.after, work.until), len(said.candidates)
    here = [
        StoredFile(one.path, one.size_bytes, from_us(one.modified_us) if one.HasField("modified_us") else None)
        for one in said.candidates
        if within.holds(key_in_place(one.path))
    ]
    for place, page in by_place(work.places, here):
        left -= len(page)
        yield place, page
    if left:
        raise CheckFailed(f"task {number} names {left} files that lie elsewhere than it was to list")
