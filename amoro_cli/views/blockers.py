"""Blockers of tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Document, Pairs
from amoro_cli.paging import Part
from amoro_cli.views.lists import list_document
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_time

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


BLOCKERS: "Listing[pb.Blocker]" = Listing(
    (
        Column("BLOCKER", lambda blocker: blocker.blocker_id),
        Column("TABLE", lambda blocker: blocker.table),
        Column("BLOCKS", lambda blocker: ", ".join(blocker.operations)),
        Column("EXPIRES", lambda blocker: format_time(blocker.expires_ms), lambda blocker: blocker.expires_ms),
        Column("REASON", lambda blocker: blocker.reason or "-"),
    ),
    spare=("BLOCKS",),
    elastic="REASON",
)


def blocker_list(part: "Part[pb.Blocker]", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.blockers/v1: `blockers`, `total`, `next`. The names are ids."""
    return list_document(
        "amoro.blockers/v1", BLOCKERS, part, arrangement, lambda blocker: blocker.blocker_id, "Nothing is blocked."
    )


def blocker_detail(blocker: "pb.Blocker") -> Document:
    """Schema amoro.blocker/v1: the fields of the blocker."""
    pairs = (
        ("blocker", blocker.blocker_id),
        ("table", blocker.table),
        ("blocks", ", ".join(blocker.operations)),
        ("expires", format_time(blocker.expires_ms)),
        *((("reason", blocker.reason),) if blocker.reason else ()),
    )
    hold_on = f"It expires by itself. To keep it, renew it in time: amoro table renew {blocker.blocker_id}"
    return Document("amoro.blocker/v1", encode(blocker), (blocker.blocker_id,), (Pairs(pairs), hold_on))


def blocker_released(blocker: "pb.Blocker") -> Document:
    """Schema amoro.blocker/v1: the fields of the released blocker."""
    text = f"Blocker {blocker.blocker_id} is released; {blocker.table} is free."
    return Document("amoro.blocker/v1", encode(blocker), (blocker.blocker_id,), (text,))


def blocked(blockers: "Sequence[pb.Blocker]") -> "tuple[tuple[str, str], ...]":
    """A line of a table's detail for each active blocker."""
    return tuple(
        (
            "blocked",
            f"{', '.join(item.operations)} until {format_time(item.expires_ms)}"
            + (f": {item.reason}" if item.reason else ""),
        )
        for item in blockers
    )
