"""Blockers of tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.encoding import encode, encode_all
from amoro_cli.output import Document, Grid, Pairs
from amoro_cli.quantities import format_time

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def blocker_list(blockers: "Sequence[pb.Blocker]") -> Document:
    """Schema amoro.blockers/v1: `blockers`. The names are ids."""
    names = tuple(blocker.blocker_id for blocker in blockers)
    body = {"blockers": encode_all(blockers)}
    if not blockers:
        return Document("amoro.blockers/v1", body, names, ("Nothing is blocked.",))
    grid = Grid(
        ("BLOCKER", "TABLE", "BLOCKS", "EXPIRES", "REASON"),
        tuple(
            (
                blocker.blocker_id,
                blocker.table,
                ", ".join(blocker.operations),
                format_time(blocker.expires_ms),
                blocker.reason or "-",
            )
            for blocker in blockers
        ),
    )
    return Document("amoro.blockers/v1", body, names, (grid,))


def blocker_detail(blocker: "pb.Blocker") -> Document:
    """Schema amoro.blocker/v1: the fields of the blocker."""
    pairs = (
        ("blocker", blocker.blocker_id),
        ("table", blocker.table),
        ("blocks", ", ".join(blocker.operations)),
        ("expires", format_time(blocker.expires_ms)),
        *((("reason", blocker.reason),) if blocker.reason else ()),
    )
    hold_on = f"It ends by itself. Renew it in time with: amoro table renew {blocker.blocker_id}"
    return Document("amoro.blocker/v1", encode(blocker), (blocker.blocker_id,), (Pairs(pairs), hold_on))


def blocker_released(blocker: "pb.Blocker") -> Document:
    """Schema amoro.blocker/v1: the fields of the blocker that holds no more."""
    text = f"Blocker {blocker.blocker_id} is released; {blocker.table} is free."
    return Document("amoro.blocker/v1", encode(blocker), (blocker.blocker_id,), (text,))


def blocked(blockers: "Sequence[pb.Blocker]") -> "tuple[tuple[str, str], ...]":
    """A line of a table's detail for each blocker that holds."""
    return tuple(
        (
            "blocked",
            f"{', '.join(item.operations)} until {format_time(item.expires_ms)}"
            + (f": {item.reason}" if item.reason else ""),
        )
        for item in blockers
    )
