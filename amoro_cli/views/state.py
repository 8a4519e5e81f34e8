"""The state database: backups and checks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.output import Document, Pairs
from amoro_core.documents.bodies import check_body
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_bytes, format_time, many

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def state_document(facts: "pb.StateFacts") -> Document:
    """Schema amoro.state/v1: file, sizes, `migrations` with `number`, `name`, `applied_at`, and the last backup."""
    known = [one for one in facts.migrations if one.applied_ms]
    last = facts.migrations[-1] if facts.migrations else None
    applied = f", since {format_time(last.applied_ms)}" if last is not None and known and known[-1] == last else ""
    leader = f"pid {facts.leader_pid} holds its lock; it was opened {many(facts.epoch, 'time')}"
    backup = f"{facts.backup_path}, {format_time(facts.backup_ms)}" if facts.backup_ms else "none that the audit knows"
    pairs = Pairs(
        (
            ("file", facts.path),
            ("size", f"{format_bytes(facts.bytes)}, and {format_bytes(facts.log_bytes)} of write-ahead log"),
            ("free", f"{format_bytes(facts.free_bytes)} on its disk"),
            ("schema", f"{last.number}, {last.name.replace('_', ' ')}{applied}" if last is not None else "none yet"),
            ("coordinator", leader if facts.leader_pid else "none answers here: this command has read the file"),
            ("last backup", backup),
            ("versions", f"Python {facts.python}, SQLite {facts.sqlite}"),
        )
    )
    return Document("amoro.state/v1", encode(facts), (facts.path,), (pairs,))


def backup_document(made: "pb.BackupStateResponse") -> Document:
    """Schema amoro.backup/v1: `path`, `bytes`."""
    return Document("amoro.backup/v1", encode(made), (made.path,), (f"{made.path}  {format_bytes(made.bytes)}",))


def check_document(problems: Sequence[str]) -> Document:
    """Schema amoro.check/v1: `ok`, `problems`. The names are the problems."""
    body = check_body(problems)
    return Document("amoro.check/v1", body, tuple(problems), tuple(problems) or ("The state database is sound.",))
