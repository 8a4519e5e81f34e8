"""Live files as inputs of tasks that only read rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from amoro_core.model.files import ScannedFile
from amoro_core.model.plans import PartitionKey
from amoro_core.model.rewrite import InputFile, RewriteInput, TableContext

#: Data that is read with one set of decoded deletes.
_CHUNK_BYTES = 2**30


def by_partition(files: Iterable[ScannedFile]) -> Mapping[PartitionKey, list[ScannedFile]]:
    """The files of each partition of each spec."""
    found: dict[PartitionKey, list[ScannedFile]] = {}
    for file in files:
        found.setdefault(PartitionKey(file.data.spec_id, file.data.partition), []).append(file)
    return found


def reading_works(context: TableContext, files: Sequence[ScannedFile]) -> Iterator[RewriteInput]:
    """Inputs for reading one partition's files, each of at most 1 GiB of data or a single file.

    Each has every delete once; nothing is written.
    """
    return (_work(context, chunk) for chunk in _chunks(files))


def _chunks(files: Sequence[ScannedFile]) -> Iterator[list[ScannedFile]]:
    chunk: list[ScannedFile] = []
    size = 0
    for file in files:
        if chunk and size + file.data.size_bytes > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(file)
        size += file.data.size_bytes
    if chunk:
        yield chunk


def _work(context: TableContext, files: Sequence[ScannedFile]) -> RewriteInput:
    deletes = tuple({delete.identity: delete for file in files for delete in file.deletes}.values())
    numbers = {delete.identity: number for number, delete in enumerate(deletes)}
    inputs = tuple(InputFile(file.data, tuple(numbers[delete.identity] for delete in file.deletes)) for file in files)
    return RewriteInput(context, inputs, (), deletes, 0, 0, 1)
