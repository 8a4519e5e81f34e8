"""Deletes of rows by others that came after a commit of ours and name files that it had replaced."""

from collections.abc import Mapping
from datetime import datetime

from amoro_core.records import record

#: Entries of a snapshot's summary that tell which application wrote it, in the order of preference.
_NAMES = ("engine-name", "app-name", "spark.app.name")
_IDS = ("app-id", "spark.app.id", "flink.job-id", "trino_query_id")


@record
class LateDelete:
    """A snapshot that deletes rows of files which a commit of ours had replaced before: these rows are back."""

    snapshot_id: int
    sequence_number: int
    committed_at: datetime
    application: str  # as `application_of`
    deletes: tuple[str, ...]  # paths of its delete files that name replaced files, in order
    files: tuple[str, ...]  # paths of the replaced files, in order
    process_id: str  # of the last of our commits that replaced one of them
    replaced_by: int  # the snapshot of that commit


def application_of(summary: Mapping[str, str]) -> str:
    """Who wrote a snapshot, as far as its summary tells: "spark 4.1 (app-id local-17)"; "an unknown application"."""
    name = next((summary[key] for key in _NAMES if summary.get(key)), "")
    if name and summary.get("engine-version"):
        name = f"{name} {summary['engine-version']}"
    ids = [f"{key} {summary[key]}" for key in _IDS if summary.get(key)]
    if not ids:
        return name or "an unknown application"
    return f"{name} ({ids[0]})" if name else ids[0]
