"""What must be read to decide: positions in delete files, and which rows tasks left out."""

from collections.abc import Iterator

from amoro_core.model.commits import Group
from amoro_core.model.files import DeleteFile
from amoro_core.validating.joining import vectors_to_read
from amoro_core.validating.sight import (
    Sight,
    deletes_of_positions,
    gone_positions,
    has_changed,
    is_ambiguous,
    is_followed,
    live_as,
    needs_map,
    on_state,
    planned_positions,
)


def to_read(sight: Sight) -> tuple[tuple[DeleteFile, ...], tuple[Group, ...]]:
    """The delete files and the maps that must be read to decide and to join, sorted by path and by number.

    Where rows are followed: position deletes that came since or went, and all planned ones where rows are looked up.
    Where they are not: those newer than the plan
    that may, by partition and bounds alone, name a rewritten file. Where vectors are joined: all of them.
    """
    found = {delete.numbered: delete for group in sight.record.groups for delete in _deletes(group, sight)}
    maps = tuple(group for group in sight.record.groups if needs_map(group, sight))
    return tuple(found[key] for key in sorted(found)), maps


def _deletes(group: Group, sight: Sight) -> Iterator[DeleteFile]:
    is_looked_up = group.look_up is not None and has_changed(group, sight)
    for _, given in on_state(group, sight):
        yield from deletes_of_positions(group, given, sight)
        yield from planned_positions(group, given) if is_looked_up else gone_positions(group, given, sight)
    for given in () if is_followed(group) else group.work.rewritten:
        live = (delete for one in live_as(given, sight) for delete in one.deletes)
        yield from (delete for delete in live if is_ambiguous(delete, sight.record))
    yield from vectors_to_read(group, sight)
