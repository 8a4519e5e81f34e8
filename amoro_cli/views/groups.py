"""Optimizer groups."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.encoding import encode, encode_all
from amoro_cli.output import Block, Document, Grid, Pairs
from amoro_cli.quantities import format_count

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def group_list(groups: "Sequence[pb.Group]") -> Document:
    """Schema amoro.groups/v1: `groups`, without what their tables used."""
    grid = Grid(
        ("GROUP", "POLICY", "OPTIMIZERS", "THREADS", "BUSY", "TABLES"),
        tuple(
            (
                group.name,
                group.scheduling_policy,
                str(group.optimizers),
                str(group.threads),
                str(group.running_tasks),
                format_count(group.tables),
            )
            for group in groups
        ),
        frozenset({"OPTIMIZERS", "THREADS", "BUSY", "TABLES"}),
    )
    bodies = [{key: value for key, value in body.items() if key != "uses"} for body in encode_all(groups)]
    return Document("amoro.groups/v1", {"groups": bodies}, tuple(group.name for group in groups), (grid,))


def group_detail(group: "pb.Group") -> Document:
    """Schema amoro.group/v1: the fields of the group; `occupation` is null for a table without limit."""
    pairs = (
        ("group", group.name),
        ("policy", group.scheduling_policy),
        ("optimizers", str(group.optimizers)),
        ("threads", f"{group.threads}, {group.running_tasks} busy"),
        ("tables", format_count(group.tables)),
        *((f"property {key}", value) for key, value in sorted(group.properties.items())),
    )
    blocks: list[Block] = [Pairs(pairs)]
    if group.uses:
        blocks += ["", _uses(group)]
    body = encode(group)
    body["uses"] = [{**use, "occupation": _known(use["occupation"])} for use in body["uses"]]
    return Document("amoro.group/v1", body, (group.name,), tuple(blocks))


def group_removed(removed: "pb.RemoveGroupResponse") -> Document:
    """Schema amoro.removed/v1: `name`."""
    return Document("amoro.removed/v1", encode(removed), (removed.name,), (f"Group {removed.name} is removed.",))


def _uses(group: "pb.Group") -> Grid:
    return Grid(
        ("TABLE", "QUOTA", "LIMIT", "BUSY", "USED"),
        tuple(
            (
                use.table,
                f"{use.quota:g}",
                str(use.limit),
                str(use.running_tasks),
                "no limit" if use.occupation < 0 else f"{use.occupation:.0%}",
            )
            for use in group.uses
        ),
        frozenset({"QUOTA", "LIMIT", "BUSY", "USED"}),
        indent=2,
    )


def _known(occupation: float) -> float | None:
    return None if occupation < 0 else occupation
