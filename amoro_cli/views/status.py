"""The coordinator, and the conditions that hold."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from amoro_cli.output import Block, Document, Grid, Pairs
from amoro_core.documents.encoding import encode, encode_all
from amoro_core.documents.quantities import format_count, format_time

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb
    from amoro_core.protocol import monitoring_pb2 as monitoring


def status_document(status: "pb.GetStatusResponse", conditions: "Sequence[monitoring.Condition]") -> Document:
    """What runs, and what is wrong."""
    body = {**encode(status), "conditions": encode_all(conditions)}
    return Document("amoro.status/v1", body, tuple(one.name for one in conditions), (*_blocks(status, conditions),))


def _blocks(status: "pb.GetStatusResponse", conditions: "Sequence[monitoring.Condition]") -> Iterator[Block]:
    serves = status.role != "reading"
    runs = (f"at {status.address} since {format_time(status.started_ms)}, PID {status.pid}",)
    yield Pairs(
        (
            ("version", status.version),
            ("coordinator", *runs) if serves else ("coordinator", "none runs on this state directory"),
            ("tables", format_count(status.tables)),
            ("optimizers", format_count(status.optimizers)),
            *((("pages", status.http_address),) if status.http_address else ()),
            ("running processes", format_count(status.running_processes)),
        )
    )
    raised = [one for one in conditions if one.raised]
    if raised:
        yield ""
        yield Grid(
            ("CONDITION", "SEVERITY", "SINCE", "WHAT"),
            tuple((one.name, one.severity, format_time(one.since_ms), one.text) for one in raised),
            elastic="WHAT",
            spare=("SINCE",),
        )
        yield ""
        yield from dict.fromkeys(f"{one.name}: {one.remedy}" for one in raised)
    elif serves:
        yield "Nothing is wrong."
    waiting = [one for one in conditions if not one.raised]
    if waiting:
        yield f"Watched, not for long enough yet: {', '.join(dict.fromkeys(one.name for one in waiting))}"


def exported_document(paths: Sequence[str]) -> Document:
    """The files that were written."""
    return Document("amoro.exported/v1", {"files": list(paths)}, tuple(paths), tuple(paths))
