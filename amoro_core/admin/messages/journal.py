"""Attempts, events, digests and series as messages."""

from collections.abc import Mapping

from amoro_core.admin.messages.values import milliseconds
from amoro_core.model.digests import BOUNDS, KeptDigest
from amoro_core.model.journal import Event, TaskAttempt
from amoro_core.model.series import SeriesFacts
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import journal_pb2 as pb
from amoro_core.services.sampling import FoundSeries


def attempt(item: TaskAttempt) -> pb.AttemptInfo:
    """The attempt; of one that runs no end is set."""
    return pb.AttemptInfo(
        task_id=item.attempt.task_id.number,
        attempt=item.attempt.number,
        optimizer_id=item.thread.optimizer_id,
        thread_id=item.thread.thread_id,
        outcome=item.outcome.value,
        scheduled_ms=milliseconds(item.scheduled_at),
        started_ms=milliseconds(item.acked_at),
        finished_ms=milliseconds(item.finished_at),
        failure_code=item.failure_code,
        failure=item.failure,
        input_rows=item.input_rows,
        input_bytes=item.input_bytes,
    )


def event(item: Event) -> pb.Event:
    """The event with its figures as texts."""
    return pb.Event(
        event_id=item.event_id,
        happened_ms=milliseconds(item.at),
        kind=item.kind.value,
        table=item.about.table,
        table_id=item.about.table_id,
        process_id=item.about.process_id,
        optimizer_id=item.about.optimizer_id,
        group=item.about.group,
        text=item.text,
        data={key: str(value) for key, value in item.data.items()},
    )


def digest(table: TableIdentifier, kept: KeptDigest | None) -> pb.TableDigest:
    """The digest of the table; without one only its name is set."""
    if kept is None:
        return pb.TableDigest(table=str(table))
    found = kept.digest
    histograms = (found.data, found.position_deletes, found.equality_deletes)
    columns = [column for one in histograms for column in (one.files, one.sizes)]
    bins = [
        pb.SizeBin(
            from_bytes=bound,
            data_files=data,
            data_bytes=data_bytes,
            position_delete_files=positions,
            position_delete_bytes=position_bytes,
            equality_delete_files=equalities,
            equality_delete_bytes=equality_bytes,
        )
        for bound, data, data_bytes, positions, position_bytes, equalities, equality_bytes in zip(
            BOUNDS, *columns, strict=True
        )
    ]
    partitions = [
        pb.PartitionDigest(
            path=one.path,
            health=one.health,
            due=one.type,
            reason=one.reason,
            data_files=one.data_files,
            data_bytes=one.data_bytes,
            records=one.records,
            small_files=one.small_files,
            position_delete_files=one.position_delete_files,
            equality_delete_files=one.equality_delete_files,
        )
        for one in found.partitions
    ]
    return pb.TableDigest(
        table=str(table),
        snapshot_id=found.snapshot_id or 0,
        read_ms=milliseconds(kept.read_at),
        target_bytes=found.target_bytes,
        sizes=bins,
        partitions=partitions,
        partitions_total=found.partitions_total,
    )


def series(found: FoundSeries, facts: Mapping[str, SeriesFacts]) -> pb.GetSeriesResponse:
    """The series with what they are."""
    shown = [
        pb.Series(
            name=one.name,
            label=one.label,
            kind=facts[one.name].kind.value,
            unit=facts[one.name].unit,
            meaning=facts[one.name].meaning,
            points=[
                pb.SeriesPoint(from_ms=milliseconds(at.at), n=at.n, sum=at.sum, min=at.min, max=at.max)
                for at in one.points
            ],
        )
        for one in found.series
    ]
    return pb.GetSeriesResponse(series=shown, step_s=found.step.seconds)
