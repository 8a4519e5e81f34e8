"""Listing files of a table, and finding orphans by the coordinator's own rules."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from amoro_core.errors import AttemptAbandoned, OptimizerError
from amoro_core.files.inventory import inventory
from amoro_core.files.io import FileAccess, open_access
from amoro_core.files.path_keys import NO_KEYS, Keys, Place, merged, seeking, seeking_places
from amoro_core.files.table_uuids import table_uuids
from amoro_core.maintaining.orphans import BEYOND, Found, Search, Terms
from amoro_core.maintaining.places import Ground, Named, by_place
from amoro_core.model.maintenance import Surroundings
from amoro_core.model.stored import KeyRange, StoredFile
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.protocol.times import from_us, to_us
from amoro_optimizer.running import BlobName, Run

_HASH_BYTES = 8


class ListKind:
    """Work of the kind `list`."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        return access_within(pb.ListWork.FromString(payload).locations, io_properties)

    def blob(self, payload: bytes) -> BlobName:
        named = pb.ListWork.FromString(payload).blob
        return BlobName(named.sha256, named.size_bytes)

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        work = pb.ListWork.FromString(payload)
        columns = dict(_columns(work, run.fetch(self.blob(payload))))
        ground = _ground(work)
        search = Search(ground, Named(seeking_places(_named(columns))), _terms(work, columns))
        for place, page in _pages(work, access):
            if run.is_cancelled():
                raise AttemptAbandoned(f"attempt {run.attempt} was cancelled")
            search.see(place, page)
            run.on_progress(search.found.files, search.found.files)
        search.opened(table_uuids(access, (one.path for one in search.found.metadata_files)), work.table_uuid)
        return _output(work, search.found).SerializeToString(deterministic=True)

    def files(self, result: bytes) -> frozenset[str]:
        return frozenset()


def _pages(work: pb.ListWork, access: FileAccess) -> Iterator[tuple[str, Sequence[StoredFile]]]:
    """Pages of the files in the work's range, each with the location below which they lie."""
    within = KeyRange(work.after, work.until)
    if not work.inventory:
        yield from ((place, page) for place in work.places for page in access.pages(place, within))
        return
    for page in inventory(access, work.inventory, within):
        yield from by_place(work.places, page)


def access_within(locations: pb.Locations, io_properties: Mapping[str, str]) -> FileAccess:
    """Access to the files of the table at these locations."""
    return open_access(
        io_properties,
        locations.location,
        read_locations=locations.readable,
        write_locations=locations.writable,
    )


_Column = tuple[int, Place]


def _columns(work: pb.ListWork, blob: bytes) -> Iterator[tuple[_Column, Keys]]:
    """The hashes by use, scheme and authority. Raises OptimizerError for a blob that does not match the work."""
    if sum(column.count for column in work.columns) * _HASH_BYTES != len(blob):
        raise OptimizerError(f"the blob {work.blob.sha256} has {len(blob)} bytes, and its columns say otherwise")
    every = np.frombuffer(blob, "<u8").astype(np.uint64, copy=False)
    at = 0
    for column in work.columns:
        keys = every[at : at + column.count]
        if len(keys) > 1 and not bool(np.all(keys[:-1] < keys[1:])):
            raise OptimizerError(f"the blob {work.blob.sha256} is not sorted")
        yield (column.use, (column.scheme, column.authority)), keys
        at += column.count


def _named(columns: Mapping[_Column, Keys]) -> Mapping[Place, Keys]:
    return {place: keys for (use, place), keys in columns.items() if use == pb.HASH_USE_NAMED}


def _of_use(columns: Mapping[_Column, Keys], wanted: int) -> Keys:
    return merged([NO_KEYS, *(keys for (use, _), keys in columns.items() if use == wanted)])


def _ground(work: pb.ListWork) -> Ground:
    return Ground(
        location=work.locations.location,
        places=tuple(work.places),
        metadata_place=work.metadata_place,
        flink_place="",  # what Flink may commit is among what is needed
        writable=tuple(work.locations.writable),
        partition_fields=tuple(work.partition_fields),
        must_be_listed=tuple(work.must_be_listed),
        same_schemes=dict(work.same_schemes),
        same_authorities=dict(work.same_authorities),
    )


def _terms(work: pb.ListWork, columns: Mapping[_Column, Keys]) -> Terms:
    now = from_us(work.now_us)
    around = Surroundings(
        active=frozenset(work.active),
        ended={one: from_us(at_ms * 1000) for one, at_ms in work.ended.items()},
    )
    return Terms(
        now,
        timedelta(milliseconds=work.age_ms),
        timedelta(milliseconds=work.task_limit_ms),
        around,
        is_needed=seeking(_of_use(columns, pb.HASH_USE_NEEDED)),
        is_condemned=seeking(_of_use(columns, pb.HASH_USE_CONDEMNED)),
        # Files written since the plan are young, and no sign of a wrong clock.
        latest=max(now, datetime.now(UTC)),
        most=work.most_candidates,
        within=KeyRange(work.after, work.until),
    )


def _output(work: pb.ListWork, found: Found) -> pb.ListOutput:
    output = pb.ListOutput(
        files=found.files,
        bytes=found.bytes,
        without_time=found.without_time,
        kept={reason: count for reason, count in found.kept.items() if reason != BEYOND},
        more_files=found.kept[BEYOND],
        more_bytes=found.beyond_bytes,
        seen=[path for path in work.must_be_listed if path not in found.unseen],
    )
    for one in found.orphans:
        modified = None if one.modified_at is None else to_us(one.modified_at)
        output.candidates.add(path=one.path, size_bytes=one.size_bytes or 0, modified_us=modified)
    return output
