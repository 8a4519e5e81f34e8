"""Reading which rows of its inputs a rewrite left out."""

from collections.abc import Mapping, Sequence

from amoro_core.errors import UnreadableFile
from amoro_core.files.io import FileAccess
from amoro_core.files.vectors import positions_in
from amoro_core.model.rewrite import PositionMap
from amoro_core.positions import PositionSet


def read_left_out(access: FileAccess, found: PositionMap, rows: Sequence[int]) -> Mapping[int, PositionSet]:
    """The rows that are in no output, by the number of the input; inputs that lost none are missing.

    `rows`: of each input. Raises DataFileMissing, and UnreadableFile for a file that is not as the map tells.
    """
    if not found.left_out:
        return {}
    content = access.read_bytes(found.path)
    if len(content) != found.size_bytes:
        raise UnreadableFile(f"{found.path} has {len(content)} bytes, the map of positions tells of {found.size_bytes}")
    return {
        one.input: positions_in(
            content[one.content_offset : one.content_offset + one.content_size_bytes],
            one.record_count,
            rows[one.input],
            f"{found.path}, byte {one.content_offset}",
        )
        for one in found.left_out
    }
