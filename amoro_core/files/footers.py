"""What a written Parquet file says of itself."""

import pyarrow.parquet as pq

from amoro_core.files.io import FileAccess, reading_parquet
from amoro_core.files.projection import leaf_ids
from amoro_core.model.commits import FileFacts


def read_facts(access: FileAccess, path: str) -> FileFacts:
    """Size, rows and counts of the file's leaf columns by field id, from its footer alone.

    Leaves in lists and maps are left out: writers count their empty lists differently.
    A leaf has a null count only when each of its row groups says one. Raises DataFileMissing or UnreadableFile.
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
