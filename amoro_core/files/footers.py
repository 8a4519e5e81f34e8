"""Facts about a written Parquet file from its footer."""

import pyarrow.parquet as pq

from amoro_core.files.io import FileAccess, reading_parquet
from amoro_core.files.projection import leaf_ids
from amoro_core.model.clustered_files import METADATA_KEY, parse_layout_text
from amoro_core.model.clustering import Layout
from amoro_core.model.commits import FileFacts


def read_facts(access: FileAccess, path: str) -> FileFacts:
    """Size, rows, and counts of the leaf columns by field id, from the footer alone.

    Leaves in lists and maps are left out: writers count empty lists differently. A leaf has a null count only if each
    of its row groups has one. Raises DataFileMissing or UnreadableFile.
    """
    size = access.size(path)
    with access.open_input(path) as source, reading_parquet(path):
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


def read_layout(access: FileAccess, path: str) -> tuple[str, Layout] | None:
    """Group and layout that a data file's footer tells; None where it tells none, or none that is understood.

    Raises DataFileMissing or UnreadableFile.
    """
    with access.open_input(path) as source, reading_parquet(path):
        told = pq.read_metadata(source).metadata or {}
    text = told.get(METADATA_KEY.encode())
    if text is None:
        return None
    try:
        return parse_layout_text(text.decode(errors="replace"))
    except ValueError:
        return None
