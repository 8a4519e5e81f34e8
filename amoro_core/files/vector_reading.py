"""Reading deletion vectors: exactly the parts of their files that manifest entries name."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from amoro_core.errors import UnreadableFile
from amoro_core.files.io import FileAccess
from amoro_core.files.vectors import positions_in
from amoro_core.model.files import DeleteFile, DeleteIdentity
from amoro_core.model.paths import normalise
from amoro_core.positions import PositionSet

#: The most bytes between two vectors that are read along, so that both need one request.
_GAP_BYTES = 64 << 10
#: The most bytes of one request for several vectors.
_REQUEST_BYTES = 16 << 20
#: Beside a byte per row: no vector is as large as both, one of single bits takes an eighth of a byte per row.
_OVERHEAD_BYTES = 1 << 20


def read_vectors(
    access: FileAccess, vectors: Iterable[DeleteFile], rows: Mapping[str, int], checkpoint: Callable[[], None]
) -> dict[DeleteIdentity, PositionSet]:
    """The positions in the vectors, by identity; those of one file that lie close together are read in one request.

    `rows`: the row counts of the data files that they name, by normalised path. `checkpoint` is called for each request
    and may raise. Raises UnreadableFile with path and offset for a vector that is not as its entry says, and
    DataFileMissing.
    """
    found: dict[DeleteIdentity, PositionSet] = {}
    for run in _runs(vectors, rows):
        checkpoint()
        start = run[0].identity.offset
        end = max(one.identity.offset + one.identity.size for one in run)
        content = access.read_range(run[0].path, start, end - start)
        for one in run:
            first = one.identity.offset - start
            blob = content[first : first + one.identity.size]
            if len(blob) < one.identity.size:
                raise UnreadableFile(
                    f"the deletion vector at {place_of(one)} has {len(blob)} of {one.identity.size} bytes: the file"
                    " ends before"
                )
            found[one.identity] = positions_in(blob, one.record_count, _rows_of(one, rows), place_of(one))
    return found


def place_of(vector: DeleteFile) -> str:
    """Where the vector lies, for messages: its file and the offset."""
    return f"{vector.path} at {vector.identity.offset}"


def _rows_of(vector: DeleteFile, rows: Mapping[str, int]) -> int:
    return rows[normalise(vector.referenced_data_file or "")]


def _runs(vectors: Iterable[DeleteFile], rows: Mapping[str, int]) -> Iterator[list[DeleteFile]]:
    """The vectors in runs, each of one file and read at once."""
    run: list[DeleteFile] = []
    for one in sorted(vectors, key=lambda one: one.identity):
        _refuse_size(one, rows)
        if run and not _joins(run, one):
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _joins(run: list[DeleteFile], one: DeleteFile) -> bool:
    first, last = run[0].identity, run[-1].identity
    is_near = one.path == first.path and one.identity.offset - (last.offset + last.size) <= _GAP_BYTES
    return is_near and one.identity.offset + one.identity.size - first.offset <= _REQUEST_BYTES


def _refuse_size(vector: DeleteFile, rows: Mapping[str, int]) -> None:
    """Raise UnreadableFile for a size that no vector of the data file has: so much is not read at all."""
    size, most = vector.identity.size, _rows_of(vector, rows) + _OVERHEAD_BYTES
    if not 0 <= size <= most:
        raise UnreadableFile(
            f"the deletion vector at {place_of(vector)} has {size} bytes, {most} are the most possible"
        )
