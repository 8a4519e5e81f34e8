"""What the coordinator has kept of what happened, as the command line asks for it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from amoro_cli.calling import Calls
from amoro_cli.paging import Part, gather
from amoro_core.model.paging import ALL, Window
from amoro_core.protocol import journal_pb2 as pb
from amoro_core.protocol import snapshots_pb2 as snapshots
from amoro_core.protocol.deadlines import QUICK, TOUCHING


class JournalCalls(Calls):
    """Methods of the AdminService that look back; every one may raise an AmoroError."""

    def list_attempts(self, process_id: str, task: int = 0, window: Window = ALL) -> tuple[str, Part[pb.AttemptInfo]]:
        """The process's id, and attempts of its tasks, of one task where it is given; by task and number."""

        def ask(limit: int, after: str) -> pb.ListAttemptsResponse:
            request = pb.ListAttemptsRequest(process_id=process_id, task_id=task, limit=limit, after=after)
            return self._call(self._stub.ListAttempts, request, QUICK)

        first, part = gather(window, ask, lambda answer: answer.attempts)
        return first.process_id, part

    def get_series(
        self, names: Sequence[str], label: str, table: str, since: timedelta, step: timedelta | None
    ) -> pb.GetSeriesResponse:
        """Values over time since so long ago: of a table, or of the system and its groups."""
        request = pb.GetSeriesRequest(
            names=names,
            label=label,
            table=table,
            since_ms=round((datetime.now(UTC) - since).timestamp() * 1000),
            step_s=int(step.total_seconds()) if step else 0,
        )
        return self._call(self._stub.GetSeries, request, QUICK)

    def compare_snapshots(self, table: str, before: int, after: int) -> snapshots.SnapshotComparison:
        """The two snapshots, and how one led to the other."""
        request = snapshots.CompareSnapshotsRequest(table=table, before=before, after=after)
        return self._call(self._stub.CompareSnapshots, request, TOUCHING)

    def get_retention(self, table: str) -> snapshots.Retention:
        """What the next expiry would decide on each snapshot, branch and tag."""
        return self._call(self._stub.GetRetention, snapshots.GetRetentionRequest(table=table), TOUCHING)

    def upgrade_table(self, table: str, format_version: int, *, dry_run: bool = False) -> snapshots.TableUpgrade:
        """The upgrade of the table's format, done, or only checked."""
        request = snapshots.UpgradeTableRequest(table=table, format_version=format_version, dry_run=dry_run)
        return self._call(self._stub.UpgradeTable, request, TOUCHING)

    def get_table_digest(self, table: str) -> pb.TableDigest:
        """The table's files in figures, as they were last read."""
        return self._call(self._stub.GetTableDigest, pb.GetTableDigestRequest(table=table), QUICK)

    def list_events(
        self,
        kinds: Sequence[str] = (),
        table: str = "",
        process_id: str = "",
        since: datetime | None = None,
        window: Window = ALL,
    ) -> tuple[int, Part[pb.Event]]:
        """The number of the last event of all, and events, the newest first."""
        since_ms = round(since.timestamp() * 1000) if since else 0

        def ask(limit: int, after: str) -> pb.ListEventsResponse:
            request = pb.ListEventsRequest(
                kinds=kinds, table=table, process_id=process_id, since_ms=since_ms, limit=limit, after=after
            )
            return self._call(self._stub.ListEvents, request, QUICK)

        first, part = gather(window, ask, lambda answer: answer.events)
        return first.last_event_id, part

    def events_after(
        self, event_id: int, kinds: Sequence[str] = (), table: str = "", process_id: str = ""
    ) -> list[pb.Event]:
        """Events that were stored after that one, in the order of storing."""
        found: list[pb.Event] = []
        while True:
            request = pb.ListEventsRequest(
                kinds=kinds, table=table, process_id=process_id, newer_than=found[-1].event_id if found else event_id
            )
            answer = self._call(self._stub.ListEvents, request, QUICK)
            found += answer.events
            if answer.total_is_exact or not answer.events:
                return found
