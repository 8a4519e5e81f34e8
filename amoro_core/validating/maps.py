"""Maps of positions: whether what a result tells of the rows that it left out adds up with the rest of it."""

from collections.abc import Iterator

from amoro_core.model.commits import Group


def map_problems(group: Group) -> Iterator[str]:
    """What is wrong with the map: it tells of as many rows as the task has deleted, of each input once, and the outputs
    hold the others."""
    found = group.output.position_map
    if found is None:
        return
    told = sum(rows.record_count for rows in found.left_out)
    if told != group.output.rows_deleted:
        yield f"{group.output.rows_deleted} rows were deleted, the map of positions has {told}"
    numbers = [rows.input for rows in found.left_out]
    if numbers != sorted(set(numbers)) or any(not 0 <= one < len(group.work.rewritten) for one in numbers):
        yield f"the map of positions tells of the inputs {numbers}"
        return
    for rows in found.left_out:
        if not 1 <= rows.record_count <= group.work.rewritten[rows.input].data.record_count:
            yield f"the map of positions leaves {rows.record_count} rows of input {rows.input} out"
    live = sum(given.data.record_count for given in group.work.rewritten) - told
    counted = sum(file.record_count for file in group.output.data_files)
    if live != counted:
        yield f"{live} rows of the inputs are live by the map of positions, the outputs have {counted}"
