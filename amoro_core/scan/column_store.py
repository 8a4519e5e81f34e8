"""The files of a part as bytes, for the cache on disk and for other processes."""

import json
from dataclasses import fields
from functools import lru_cache

import pyarrow as pa

from amoro_core.scan.columns import ColumnPart, Place, Shape

#: Threads that decompress the few small columns of a part take three times the CPU.
_ALONE = pa.ipc.IpcReadOptions(use_threads=False)
#: Where fewer files share a directory, their shape would be as large as their paths.
_FILES_OF_DIRECTORY = 8


def packed_part(part: ColumnPart, compression: str | None = None) -> bytes:
    """An Arrow stream with the places in its metadata, and the shape of the paths where that is small."""
    places = [
        (spec_id, [None if one is None else one.hex() for one in partition]) for spec_id, partition in part.places
    ]
    shape = part.paths.shape
    is_small = _FILES_OF_DIRECTORY * (len(shape.directories) + len(shape.odd)) <= part.batch.num_rows
    told = {"shape": json.dumps([getattr(shape, one.name) for one in fields(Shape)])} if is_small else {}
    batch = part.batch.replace_schema_metadata({"places": json.dumps(places), **told})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def unpacked_part(payload: bytes) -> ColumnPart:
    """What was packed. Raises ArrowException, OSError or StopIteration for a stream that this Arrow can't read."""
    with pa.ipc.open_stream(payload, options=_ALONE) as reader:
        batch = reader.read_next_batch()
    told = batch.schema.metadata
    return ColumnPart(_places(told[b"places"]), batch, _shape(told[b"shape"]) if b"shape" in told else None)


@lru_cache(maxsize=1)  # the files of many manifests lie in the same directories
def _shape(text: bytes) -> Shape:
    directories, odd, *others = json.loads(text)
    return Shape(tuple(directories), tuple(odd), *others)


@lru_cache(maxsize=1)  # where a manifest has files of many places, the next one often has files of the same
def _places(text: bytes) -> tuple[Place, ...]:
    return tuple(
        (spec_id, tuple(None if one is None else bytes.fromhex(one) for one in partition))
        for spec_id, partition in json.loads(text)
    )
