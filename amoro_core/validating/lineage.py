"""Lineage across a rewrite: inputs whose rows got ids since the plan, and outputs that lack what their rows had.

From format 3 on outputs store each row's id and its last update. Whether an input has a first row id decides which ids
are stored, so it is part of the input's identity.
"""

from collections.abc import Iterator, Mapping, Sequence

from amoro_core.model.commits import FileFacts, Group
from amoro_core.model.files import DataFile, ScannedFile
from amoro_core.model.lineage import FORMAT_WITH_LINEAGE, LAST_UPDATED_FIELD_ID, LINEAGE_IDS, ROW_ID_FIELD_ID
from amoro_core.model.paths import normalise


def first_row_ids_are_the_planned_ones(group: Group, files: Mapping[str, Sequence[ScannedFile]]) -> str | None:
    """An input that got ids since the plan has rows with ids, while the outputs left them to be assigned: a second id.

    `files` has the head's files by normalised path. Files that stay where they are keep what the head gave them.
    """
    for given in group.work.rewritten:
        for found in files.get(normalise(given.data.path), ()):
            if found.data.first_row_id != given.data.first_row_id:
                return (
                    f"the rows of {given.data.path} have other ids than when it was planned: its first row id is"
                    f" {_shown(found.data)}, planned with {_shown(given.data)}"
                )
    return None


def lineage_problems(  # noqa: C901 - one pass over inputs and outputs
    group: Group, rescanned: Mapping[str, ScannedFile], facts: Mapping[str, FileFacts]
) -> Iterator[str]:
    """What the outputs of a group lack: both columns for every row, with nulls only where rows have no ids yet.

    `rescanned` has each input by path, but for those that are gone, `facts` each output. An optimizer that does not
    know lineage leaves it out, and all its rows would seem to be new.
    """
    if group.work.table.format_version < FORMAT_WITH_LINEAGE:
        return
    inputs = [
        rescanned[given.data.path].data if given.data.path in rescanned else given.data
        for given in group.work.rewritten
    ]
    for given, found in zip(group.work.rewritten, inputs, strict=True):
        if found.first_row_id != given.data.first_row_id:
            yield f"the first row id of {found.path} is {_shown(found)}, planned was {_shown(given.data)}"
    never_null = {LAST_UPDATED_FIELD_ID}
    if all(file.first_row_id is not None for file in inputs):
        never_null.add(ROW_ID_FIELD_ID)
    for file in group.output.data_files:
        if file.first_row_id is not None:
            yield f"{file.path} has the first row id {file.first_row_id}, which only a commit gives"
        if not file.record_count:
            continue
        counted = facts[file.path]
        for field_id in LINEAGE_IDS:
            values = counted.value_counts.get(field_id)
            nulls = counted.null_value_counts.get(field_id)
            if values != file.record_count:
                yield f"{file.path} has {values} values of field {field_id} in {file.record_count} rows"
            elif nulls is None or (nulls and field_id in never_null):
                yield f"{file.path} has {'uncounted' if nulls is None else nulls} nulls of field {field_id}"


def _shown(file: DataFile) -> str:
    return "none" if file.first_row_id is None else str(file.first_row_id)
