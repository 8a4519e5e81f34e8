"""The state database: backups and checks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.output import Document
from amoro_core.documents.bodies import check_body
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_bytes

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def backup_document(made: "pb.BackupStateResponse") -> Document:
    """Schema amoro.backup/v1: `path`, `bytes`."""
    return Document("amoro.backup/v1", encode(made), (made.path,), (f"{made.path}  {format_bytes(made.bytes)}",))


def check_document(problems: Sequence[str]) -> Document:
    """Schema amoro.check/v1: `ok`, `problems`. The names are the problems."""
    body = check_body(problems)
    return Document("amoro.check/v1", body, tuple(problems), tuple(problems) or ("The state database is sound.",))
