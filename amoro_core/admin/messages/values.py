"""Parts that many messages share."""

from datetime import UTC, datetime, timedelta

from amoro_core.errors import InvalidArgument
from amoro_core.model.tables import FileSummary
from amoro_core.protocol import admin_pb2 as pb


def milliseconds(moment: datetime | None) -> int:
    """UTC milliseconds since the epoch; 0 for never."""
    return 0 if moment is None else round(moment.timestamp() * 1000)


def moment(since_epoch_ms: int) -> datetime:
    """The time in UTC. Raises InvalidArgument for one that no calendar has."""
    try:
        if since_epoch_ms < 0:
            raise OverflowError
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=since_epoch_ms)
    except OverflowError as error:
        raise InvalidArgument(f"{since_epoch_ms} ms since 1970 is no time") from error


def files(summary: FileSummary) -> pb.FileSummary:
    """Live files in figures."""
    return pb.FileSummary(
        data_files=summary.data_files,
        data_bytes=summary.data_bytes,
        fragment_files=summary.fragment_files,
        undersized_files=summary.undersized_files,
        equality_delete_files=summary.equality_delete_files,
        position_delete_files=summary.position_delete_files,
        delete_bytes=summary.delete_bytes,
        dangling_delete_files=summary.dangling_delete_files,
        records=summary.records,
        coarse_files=summary.coarse_files,
        coarse_bytes=summary.coarse_bytes,
    )
