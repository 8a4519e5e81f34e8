"""Writing deletion vectors: one Puffin file for many data files."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from amoro_core.errors import AmoroError
from amoro_core.files.io import FileAccess, translated
from amoro_core.files.vectors import vectors_file
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat
from amoro_core.positions import PositionSet

#: Written at once; between two pieces the attempt may be abandoned.
_PIECE_BYTES = 1 << 20


def write_vectors(
    access: FileAccess,
    path: str,
    vectors: Sequence[tuple[DataFile, PositionSet]],
    sequence_number: int,
    checkpoint: Callable[[], None] | None = None,
) -> tuple[DeleteFile, ...]:
    """Write a Puffin file with a vector for each data file, and return them in this order.

    `sequence_number`: the data sequence number of the vectors. `checkpoint` is called for each piece that is written,
    and may raise. Raises StorageFull. On any error the file is removed.
    """
    content, parts = vectors_file([(data.path, positions) for data, positions in vectors])
    output = access.create_output(path)
    try:
        with translated(path), output as stream:
            for start in range(0, len(content), _PIECE_BYTES):
                if checkpoint is not None:
                    checkpoint()
                stream.write(content[start : start + _PIECE_BYTES])
    except BaseException:
        with suppress(AmoroError):
            access.delete(path)
        raise
    return tuple(
        DeleteFile(
            path=path,
            kind=DeleteKind.POSITION,
            file_format=FileFormat.PUFFIN,
            spec_id=data.spec_id,
            partition=data.partition,
            record_count=len(positions),
            size_bytes=len(content),
            sequence_number=sequence_number,
            referenced_data_file=data.path,
            content_offset=part.offset,
            content_size_bytes=part.size_bytes,
        )
        for (data, positions), part in zip(vectors, parts, strict=True)
    )
