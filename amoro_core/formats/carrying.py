"""Writing the deletes that a commit carries over to its outputs."""

import uuid
from collections.abc import Sequence
from contextlib import suppress

from amoro_core.errors import AmoroError
from amoro_core.files.deletes import write_position_deletes
from amoro_core.files.io import FileAccess
from amoro_core.files.options import WriterOptions
from amoro_core.files.vector_writing import write_vectors
from amoro_core.model.files import DeleteFile
from amoro_core.validating.rebasing import CarriedRows


def write_carried(
    access: FileAccess, rows: Sequence[CarriedRows], process_id: str, options: WriterOptions | None
) -> tuple[DeleteFile, ...]:
    """One position delete file for each output, in its directory; without options a vector for each, in one file.

    Their sequence numbers are those of the outputs, until the commit gives them its own. Raises StorageFull; all are
    deleted again then, as far as possible.
    """
    if not rows:
        return ()
    if options is None:
        path = _path(rows[0], process_id, "puffin")
        vectors = [(one.output, one.positions) for one in rows]
        return write_vectors(access, path, vectors, rows[0].output.sequence_number)
    written: list[DeleteFile] = []
    try:
        for one in rows:
            path = _path(one, process_id, "parquet")
            number = one.output.sequence_number
            written.append(write_position_deletes(access, path, one.output, one.positions.ascending(), number, options))
    except BaseException:
        for file in written:
            with suppress(AmoroError):
                access.delete(file.path)
        raise
    return tuple(written)


def _path(rows: CarriedRows, process_id: str, extension: str) -> str:
    """A new path beside the output, not named as a conversion: what came before the commit is not folded into it."""
    return f"{rows.output.path.rpartition('/')[0]}/{process_id}-{rows.group}-{uuid.uuid4()}-carried.{extension}"
