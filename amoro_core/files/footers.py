"""Facts about a written file: of Parquet from its footer, of Puffin from its vectors."""

import pyarrow.parquet as pq

from amoro_core.errors import UnreadableFile
from amoro_core.files.io import FileAccess, reading_file
from amoro_core.files.projection import leaf_ids
from amoro_core.files.puffin import blobs_in
from amoro_core.files.vectors import VECTOR, positions_in
from amoro_core.model.clustered_files import METADATA_KEY, parse_layout_text
from amoro_core.model.clustering import Layout
from amoro_core.model.commits import FileFacts, VectorFacts
from amoro_core.model.files import FileFormat

#: How many rows the data file of a vector has is not known here.
_MOST_ROWS = 2**63


def read_facts(access: FileAccess, path: str) -> FileFacts:
    """Size, rows, and counts of the leaf columns by field id, from the footer alone; the vectors of a Puffin file.

    Leaves in lists and maps are left out: writers count empty lists differently. A leaf has a null count only if each
    of its row groups has one. Vectors are read whole. Raises DataFileMissing or UnreadableFile.
    """
    if path.endswith(f".{FileFormat.PUFFIN}"):
        return _facts_of_vectors(access.read_bytes(path), path)
    size = access.size(path)
    with access.open_input(path) as source, reading_file(path):
        file = pq.ParquetFile(source, pre_buffer=False, arrow_extensions_enabled=False)
        leaves = leaf_ids(file.schema_arrow)
        metadata = file.metadata
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    for index, (field_id, repeated) in enumerate(leaves):
        if field_id is None or repeated:
            continue
        chunks = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        values[field_id] = sum(chunk.num_values for chunk in chunks)
        statistics = [chunk.statistics for chunk in chunks]
        if all(one is not None and one.has_null_count for one in statistics):
            nulls[field_id] = sum(one.null_count for one in statistics)
    return FileFacts(size, metadata.num_rows, values, nulls)


def _facts_of_vectors(content: bytes, path: str) -> FileFacts:
    found = {}
    for offset, blob in blobs_in(content, path).items():
        told = blob.properties.get("cardinality", "")
        if blob.type != VECTOR or not told.isdecimal():
            raise UnreadableFile(f"{path} has a blob at {offset} that is no deletion vector")
        positions = positions_in(blob.payload, int(told), _MOST_ROWS, f"{path} at {offset}")
        names = blob.properties.get("referenced-data-file", "")
        found[offset] = VectorFacts(names, len(blob.payload), len(positions), positions.last)
    return FileFacts(len(content), sum(one.record_count for one in found.values()), {}, {}, found)


def read_layout(access: FileAccess, path: str) -> tuple[str, Layout] | None:
    """Group and layout that a data file's footer tells; None where it tells none, or none that is understood.

    Raises DataFileMissing or UnreadableFile.
    """
    with access.open_input(path) as source, reading_file(path):
        told = pq.read_metadata(source).metadata or {}
    text = told.get(METADATA_KEY.encode())
    if text is None:
        return None
    try:
        return parse_layout_text(text.decode(errors="replace"))
    except ValueError:
        return None
