"""What the command line needs from the program around it: starting coordinators, optimizers and tools."""

import getpass
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeVar

import grpc
import typer

from amoro_core.documents.formatting import format_count
from amoro_core.errors import (
    AmoroError,
    CommitUnknown,
    Conflict,
    CoordinatorUnavailable,
    InvalidArgument,
    NotAllowed,
    NotFound,
    TableRefused,
    WaitTimeout,
    WorkFailed,
)
from amoro_core.model.audit import AuditFilter
from amoro_core.model.paging import ALL, PAGE, Window
from amoro_core.model.query_log_parser import ScanRecord
from amoro_core.model.text_sanitizing import Secret
from amoro_core.model.tls_files import PLAIN, Trust
from amoro_core.protocol import accounts_pb2 as accounts
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2 as audit_pb
from amoro_core.protocol import journal_pb2 as journal_pb
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.protocol import queue_pb2 as queue
from amoro_core.protocol import snapshots_pb2 as snapshots
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.protocol.channels import USER_KEY, WAY_KEY, explained, is_encrypted, open_channel, shortened
from amoro_core.protocol.operations import LASTING, QUICK, READING, TOUCHING
from amoro_core.protocol.tokens import parse_token

if TYPE_CHECKING:
    from google.protobuf.message import Message


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `amoro up` starts."""

    home: Path
    config: Path | None
    host: str | None  # None: as the settings say
    port: int | None  # 0: any free one
    threads: int | None  # None: as many as there are cores
    memory_bytes: int  # of each thread
    without_optimizer: bool


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The Spark application that an optimizer runs as."""

    master: str | None  # None: as Spark's own configuration says, else local[*]
    settings: tuple[tuple[str, str], ...] = ()  # take precedence over Spark's own configuration


@dataclass(frozen=True, slots=True)
class OptimizerOptions:
    """What `amoro optimizer` starts."""

    address: str
    group: str
    threads: int | None  # None: one for each core of the Spark application; always set for other backends
    memory_bytes: int  # of each thread
    token_file: Path | None  # with the enrolment token; None: the state directory's
    home: Path
    heartbeat_interval: timedelta
    resource_id: str | None
    spark: SparkOptions | None = None  # None: tasks run in its own threads
    trust: Trust = PLAIN


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What `amoro demo` shows."""

    seconds: int  # how long the writer goes on
    directory: Path | None  # None: a temporary one
    plain: bool  # lines instead of a live display


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of doctor."""

    name: str
    ok: bool
    detail: str
    fix: str = ""  # what to do when it is not ok


@dataclass(frozen=True, slots=True)
class PackageOptions:
    """What is packed for Spark's executors."""

    output: Path | None  # None: in the current directory, named after the platform it runs on
    include: tuple[str, ...]  # further distributions
    with_interpreter: bool


@dataclass(frozen=True, slots=True)
class Package:
    """An archive for Spark's executors."""

    path: Path
    size_bytes: int
    python: str  # the version that it runs on, such as 3.11
    has_interpreter: bool
    distributions: tuple[tuple[str, str], ...]  # names and versions


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a coordinator answers, and the admin token it takes."""

    address: str
    token: Secret = field(repr=False)
    trust: Trust = PLAIN
    passing: bool = False  # it serves one command, and ends with it


class Kind(StrEnum):
    """Kinds of names that a shell can complete."""

    TABLE = "table"
    CATALOG = "catalog"
    PROCESS = "process"
    OPTIMIZER = "optimizer"
    GROUP = "group"


class Launcher(Protocol):
    """Starts coordinators and optimizers for the command line; every method may raise AmoroError."""

    def up(self, options: UpOptions) -> None:
        """Run a coordinator, with an optimizer unless told otherwise, until a signal ends it."""

    def optimizer(self, options: OptimizerOptions) -> None:
        """Run an optimizer until a signal ends it."""

    def package(self, options: PackageOptions) -> Package:
        """Pack what Spark's executors need to run tasks."""

    def demo(self, options: DemoOptions) -> None:
        """Show the main job on a warehouse made for it."""

    def doctor(self, home: Path, config: Path | None) -> list[Finding]:
        """Check the installation."""

    def names(self, kind: Kind, home: Path) -> Sequence[str]:
        """The names of that kind in the state directory, without delay; empty when they can't be read."""

    def reading(self, home: Path, config: Path | None) -> AbstractContextManager[Endpoint]:
        """A server in this process for read-only calls, from the state directory and the catalogs.

        It waits for no lock, and creates and changes nothing, the state directory included.
        """

    def embedded(self, home: Path, config: Path | None, wait: timedelta) -> AbstractContextManager[Endpoint]:
        """A coordinator with one optimizer in this process, under the state directory's lock.

        Raises StateDirectoryLocked when the lock is not free after `wait`.
        """


def remote_error(code: str, exit_status: int, message: str, hint: str = "") -> AmoroError:
    """The reported error, of the class that has its code.

    For an unknown code, or one whose status differs here, a subclass of the class that has that status, with what was
    sent. An exit status that means success becomes 1.
    """
    status = exit_status or AmoroError.exit_status
    known = _BY_CODE.get(code)
    if known is not None and known.exit_status == status:
        return _made(known, message, hint)
    family = _BY_STATUS.get(status, AmoroError)
    return _made(type(family.__name__, (family,), {"code": code or family.code, "exit_status": status}), message, hint)


def _made(kind: type[AmoroError], message: str, hint: str) -> AmoroError:
    if issubclass(kind, TableRefused):
        return kind(message, reason="", hint=hint)
    return kind(message, hint=hint)


def _tree(kind: type[AmoroError]) -> Iterator[type[AmoroError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


#: The most general class of each exit status.
_BY_STATUS = {
    kind.exit_status: kind
    for kind in (WorkFailed, InvalidArgument, NotFound, NotAllowed, Conflict, TableRefused, CommitUnknown, WaitTimeout)
}
_BY_CODE = {kind.code: kind for kind in _tree(AmoroError)}


Answer = TypeVar("Answer")

#: Status of a call whose coordinator ended before or during it.
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # a long list from our own coordinator is no danger
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 2000),  # a wait resumes soon after a coordinator's restart
]
_WHERE_TOKENS_ARE = (
    "On the coordinator's machine the token is read from STATE_DIRECTORY/admin.token (see --home); "
    "elsewhere give it with --token-file or AMORO_TOKEN."
)


def _user() -> str:
    """The name of the user who runs this, or the number where the machine knows no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


class Calls:
    """A connection to one coordinator; every call may raise an AmoroError."""

    def __init__(self, endpoint: Endpoint, after: Callable[[Endpoint], Endpoint | None] = lambda gone: None) -> None:
        """`after` returns the endpoint that replaces one whose coordinator has ended; None: there is none."""
        self._after = after
        self._more: tuple[tuple[str, str], ...] = ()  # metadata beside that of every call
        self._open(endpoint)

    def set_channel(self, way: str) -> None:
        """Have the audit show from now on that calls come by that way."""
        self._more = ((WAY_KEY, way),)

    def _open(self, endpoint: Endpoint) -> None:
        try:
            token = parse_token(endpoint.token.reveal()).reveal()
        except ValueError as error:
            raise NotAllowed(f"The admin token can't be used: {error}", hint=_WHERE_TOKENS_ARE) from error
        self._endpoint = endpoint
        self.address = endpoint.address
        self._metadata = (("authorization", f"Bearer {token}"), (USER_KEY, _user().encode(errors="replace")))
        self._encrypted = is_encrypted(endpoint.address, endpoint.trust)
        self._channel = open_channel(endpoint.address, endpoint.trust, _OPTIONS)
        self._stub = AdminServiceStub(self._channel)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def ask(self, method: str, request: "Message", within: timedelta) -> "Message":
        """The answer of the method of that name."""
        found: Message = self._call(getattr(self._stub, method), request, within)
        return found

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Any, Answer]",
        request: Any,
        within: timedelta,
        late: type[AmoroError] = CoordinatorUnavailable,
    ) -> Answer:
        while True:
            try:
                return method(request, timeout=within.total_seconds(), metadata=(*self._metadata, *self._more))
            except grpc.RpcError as error:
                again = self._elsewhere(method) if error.code() in _GONE else None
                if again is None:
                    reason = explained(self.address, error.details() or "", encrypted=self._encrypted)
                    raise reason or _translate(error, self.address, within, late) from error
                method = again

    def _elsewhere(
        self, method: "grpc.UnaryUnaryMultiCallable[Any, Answer]"
    ) -> "grpc.UnaryUnaryMultiCallable[Any, Answer] | None":
        """The same method at the endpoint to continue with once the coordinator has ended; None without one."""
        endpoint = self._after(self._endpoint)
        if endpoint is None:
            return None
        name = next(name for name, known in vars(self._stub).items() if known is method)
        self._channel.close()
        self._open(endpoint)
        found: grpc.UnaryUnaryMultiCallable[Any, Answer] = getattr(self._stub, name)
        return found


def _translate(error: Any, address: str, within: timedelta, late: type[AmoroError]) -> AmoroError:
    status: grpc.StatusCode = error.code()
    message: str = error.details() or status.name
    sent = dict(error.trailing_metadata() or ())
    code, exit_status = _text(sent.get("amoro-code")), _text(sent.get("amoro-exit"))
    hint = _text(sent.get("amoro-hint-bin"))
    if status is grpc.StatusCode.UNAUTHENTICATED:
        return remote_error(code or NotAllowed.code, NotAllowed.exit_status, message, _WHERE_TOKENS_ARE)
    if code:
        return remote_error(code, int(exit_status) if exit_status.isdigit() else 1, message, hint)
    match status:
        case grpc.StatusCode.UNAVAILABLE:
            return CoordinatorUnavailable(
                f"The coordinator at {address} does not answer: {shortened(message)}",
                hint="Start one with: amoro up. Or name another with --address or --home.",
            )
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return late(f"The coordinator at {address} did not answer within {within.total_seconds():g} s")
        case grpc.StatusCode.UNIMPLEMENTED:
            return WorkFailed(
                f"The coordinator at {address} cannot do this: {message}",
                hint="It may be older than this command line: compare the versions.",
            )
        case grpc.StatusCode.PERMISSION_DENIED:
            return NotAllowed(message, hint=_WHERE_TOKENS_ARE)
    return WorkFailed(f"The coordinator at {address} failed: {message}", hint="Its log says more.")


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


Item = TypeVar("Item")
PagedAnswer = TypeVar("PagedAnswer", bound="Paged")

LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit", help="How many to list at most [default: all].", min=1, max=1_000_000_000, show_default=False
    ),
]


def after_option(what: str) -> Any:
    """The option --after; `what` names the key of the list's items."""
    return typer.Option("--after", metavar=what, help="Only what follows this one in the list.", show_default=False)


def window(limit: int | None, after: str) -> Window:
    """The window that the two options select."""
    return Window(limit or 0, after)


class Paged(Protocol):
    """An answer that may be one of several pages."""

    @property
    def next(self) -> str:
        """The key after which the next page begins; "" on the last page."""

    @property
    def total(self) -> int:
        """How many items there are on all pages."""


@dataclass(frozen=True, slots=True)
class ListRange(Generic[Item]):
    """The requested part of a list, or one page of it."""

    items: Sequence[Item]
    total: int = 0  # items in the whole list
    next: str = ""  # key after which the rest begins; "": nothing is left
    after: str = ""  # key after which this part begins
    total_is_exact: bool = True  # False: there are more than `total`
    before: int = 0  # items on earlier pages of the part
    goes_on: bool = False  # another page of the part follows

    @property
    def rest(self) -> tuple[str, ...]:
        """The line beneath an incomplete list."""
        left = self.total - self.before - len(self.items)
        if self.goes_on:
            return ()
        if self.after or (left <= 0 and not self.total_is_exact):
            return ("and more: see --limit",) if self.next else ()
        most = "" if self.total_is_exact else "more than "
        return (f"and {most}{format_count(left)} more: see --limit",) if left > 0 else ()

    @property
    def keys(self) -> dict[str, int | str | None]:
        """The same for programs."""
        return {"total": self.total, "next": self.next or None}


def gather(
    wanted: Window, ask: Callable[[int, str], PagedAnswer], items_of: Callable[[PagedAnswer], Sequence[Item]]
) -> tuple[PagedAnswer, ListRange[Item]]:
    """The first answer, and the items of all answers up to the limit. `ask` takes a limit and a key to begin after.

    The coordinator returns as many at once as one message holds.
    """
    answers: list[PagedAnswer] = []

    def parts() -> Iterator[ListRange[Item]]:
        for answer, part in pages(wanted, ask, items_of):
            answers[:] = answers or [answer]
            yield part

    part = whole(parts())
    return answers[0], part


def whole(parts: Iterator[ListRange[Item]]) -> ListRange[Item]:
    """All pages as one; there is at least one."""
    last = next(parts)
    found = list(last.items)
    for last in parts:
        found += last.items
    return replace(last, items=found, before=0)


def pages(
    wanted: Window, ask: Callable[[int, str], PagedAnswer], items_of: Callable[[PagedAnswer], Sequence[Item]]
) -> Iterator[tuple[PagedAnswer, ListRange[Item]]]:
    """The same, each answer with its items as it comes; at least one."""
    total, is_exact, seen, after = 0, True, 0, wanted.after
    while True:
        answer = ask(wanted.limit - seen if wanted.limit else 0, after)
        items = items_of(answer)
        if not seen:
            total, is_exact = answer.total, getattr(answer, "total_is_exact", True)
        goes_on = bool(answer.next) and (not wanted.limit or seen + len(items) < wanted.limit)
        if not is_exact and not answer.next and not wanted.after:
            total, is_exact = seen + len(items), True  # all of them were counted here
        yield answer, ListRange(items, total, answer.next, wanted.after, is_exact, seen, goes_on)
        if not goes_on:
            return
        seen, after = seen + len(items), answer.next


@dataclass(frozen=True, slots=True)
class Ordering:
    """What `--type cluster` takes beside what the table's properties say."""

    columns: tuple[str, ...] = ()
    strategy: str = ""
    partitions: str = ""
    full: bool = False
    schedule_only: bool = False

    @property
    def message(self) -> "pb.ClusterOptions | None":
        """The same for the coordinator; None where nothing is asked for."""
        from amoro_core.protocol import admin_pb2 as pb

        if self == AS_CONFIGURED:
            return None
        return pb.ClusterOptions(
            columns=self.columns,
            strategy=self.strategy,
            partitions=self.partitions,
            full=self.full,
            schedule_only=self.schedule_only,
        )

    @property
    def options(self) -> list[str]:
        """The same as options of a command."""
        return [
            *(["--columns", ",".join(self.columns)] if self.columns else []),
            *(["--strategy", self.strategy] if self.strategy else []),
            *(["--partitions", self.partitions] if self.partitions else []),
            *(["--full"] if self.full else []),
            *(["--schedule-only"] if self.schedule_only else []),
        ]


AS_CONFIGURED = Ordering()


def columns_of(text: str) -> tuple[str, ...]:
    """Names of columns with commas between them."""
    return tuple(name.strip() for name in text.split(",")) if text.strip() else ()


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    """An action requested on a table, with the options that override the table's properties."""

    table: str
    action: str
    older_than: timedelta | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    locations: tuple[str, ...] = ()
    file_list: str = ""
    confirm: str = ""  # the table's name, where the plan was seen

    @property
    def request(self) -> "pb.MaintainTableRequest":
        """The request message."""
        from amoro_core.protocol import admin_pb2 as pb

        return pb.MaintainTableRequest(
            table=self.table,
            action=self.action,
            older_than_ms=_ms(self.older_than),
            retain_last=self.retain_last or 0,
            snapshot_ids=self.snapshot_ids,
            locations=self.locations,
            file_list=self.file_list,
            confirm=self.confirm,
        )


def _ms(duration: timedelta | None) -> int:
    return 0 if duration is None else duration // timedelta(milliseconds=1)


class ListCalls(Calls):
    """Calls for lists; every one may raise an AmoroError."""

    def list_tables(
        self, catalog: str = "", status: str = "", group: str = "", window: Window = ALL
    ) -> ListRange[pb.Table]:
        """Tables by name."""
        wanted = pb.ListTablesRequest(catalog=catalog, status=status, group=group)
        return gather(window, self._ask_tables(wanted), lambda answer: answer.tables)[1]

    def table_pages(self, wanted: pb.ListTablesRequest, window: Window) -> Iterator[ListRange[pb.Table]]:
        """Tables as `wanted` says, page by page; at least one."""
        for _, part in pages(window, self._ask_tables(wanted), lambda answer: answer.tables):
            yield part

    def _ask_tables(self, wanted: pb.ListTablesRequest) -> Callable[[int, str], pb.ListTablesResponse]:
        def ask(limit: int, after: str) -> pb.ListTablesResponse:
            request = pb.ListTablesRequest(limit=limit, after=after)
            request.MergeFrom(wanted)
            return self._call(self._stub.ListTables, request, QUICK)

        return ask

    def list_queue(self, group: str = "", window: Window = ALL, only: str = "") -> queue.ListQueueResponse:
        """What waits for a plan or for threads, in one group or all: the limit is of each of the two lists.

        All pages as one answer; what came twice because the order moved between them is there once.
        """
        pending: dict[tuple[str, int], queue.PendingTable] = {}
        waiting: dict[tuple[str, str], queue.WaitingProcess] = {}
        first, left, after, order_changed = None, window.limit, window.after, False
        while True:
            limit = min(left, PAGE) if window.limit else PAGE
            request = queue.ListQueueRequest(group=group, limit=limit, after=after, only=only)
            answer = self._call(self._stub.ListQueue, request, QUICK)
            first, order_changed = first or answer, order_changed or answer.order_changed
            for table in answer.pending:
                pending.setdefault((table.group, table.table_id), table)
            for process in answer.waiting:
                waiting.setdefault((process.group, process.process_id), process)
            left -= max(len(answer.pending), len(answer.waiting))
            after = answer.next
            if not after or (window.limit and left <= 0):
                break
        return queue.ListQueueResponse(
            pending=pending.values(),
            waiting=waiting.values(),
            pending_total=first.pending_total,
            waiting_total=first.waiting_total,
            next=after,
            order_changed=order_changed,
        )

    def list_trash(self, table: str = "", window: Window = ALL) -> ListRange[pb.Trash]:
        """Condemned files that are not deleted yet, by process."""

        def ask(limit: int, after: str) -> pb.ListTrashResponse:
            request = pb.ListTrashRequest(table=table, limit=limit, after=after)
            return self._call(self._stub.ListTrash, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.trash)[1]

    def list_leases(self, table: str = "", window: Window = ALL) -> ListRange[pb.Lease]:
        """Active leases, the next to expire first."""

        def ask(limit: int, after: str) -> pb.ListLeasesResponse:
            request = pb.ListLeasesRequest(table=table, limit=limit, after=after)
            return self._call(self._stub.ListLeases, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.leases)[1]


class JournalCalls(Calls):
    """Methods of the AdminService that look back; every one may raise an AmoroError."""

    def list_attempts(
        self, process_id: str, task: int = 0, window: Window = ALL
    ) -> tuple[str, ListRange[journal_pb.AttemptInfo]]:
        """The process's id, and attempts of its tasks, of one task where it is given; by task and number."""

        def ask(limit: int, after: str) -> journal_pb.ListAttemptsResponse:
            request = journal_pb.ListAttemptsRequest(process_id=process_id, task_id=task, limit=limit, after=after)
            return self._call(self._stub.ListAttempts, request, QUICK)

        first, part = gather(window, ask, lambda answer: answer.attempts)
        return first.process_id, part

    def get_series(
        self, names: Sequence[str], label: str, table: str, since: timedelta, step: timedelta | None
    ) -> journal_pb.GetSeriesResponse:
        """Values over time since so long ago: of a table, or of the system and its groups."""
        request = journal_pb.GetSeriesRequest(
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

    def get_table_digest(self, table: str) -> journal_pb.TableDigest:
        """The table's files in figures, as they were last read."""
        return self._call(self._stub.GetTableDigest, journal_pb.GetTableDigestRequest(table=table), QUICK)

    def list_events(
        self,
        kinds: Sequence[str] = (),
        table: str = "",
        process_id: str = "",
        since: datetime | None = None,
        window: Window = ALL,
    ) -> tuple[int, ListRange[journal_pb.Event]]:
        """The number of the last event of all, and events, the newest first."""
        since_ms = round(since.timestamp() * 1000) if since else 0

        def ask(limit: int, after: str) -> journal_pb.ListEventsResponse:
            request = journal_pb.ListEventsRequest(
                kinds=kinds, table=table, process_id=process_id, since_ms=since_ms, limit=limit, after=after
            )
            return self._call(self._stub.ListEvents, request, QUICK)

        first, part = gather(window, ask, lambda answer: answer.events)
        return first.last_event_id, part

    def events_after(
        self, event_id: int, kinds: Sequence[str] = (), table: str = "", process_id: str = ""
    ) -> list[journal_pb.Event]:
        """Events that were stored after that one, in the order of storing."""
        found: list[journal_pb.Event] = []
        while True:
            request = journal_pb.ListEventsRequest(
                kinds=kinds, table=table, process_id=process_id, newer_than=found[-1].event_id if found else event_id
            )
            answer = self._call(self._stub.ListEvents, request, QUICK)
            found += answer.events
            if answer.total_is_exact or not answer.events:
                return found


class AccessCalls(JournalCalls):
    """Methods of the AdminService about accounts; every one may raise an AmoroError."""

    def list_audit(self, wanted: AuditFilter, window: Window = ALL) -> ListRange[audit_pb.AuditEvent]:
        """Calls that change something, the newest first."""

        def ask(limit: int, after: str) -> audit_pb.ListAuditResponse:
            request = audit_pb.ListAuditRequest(
                actor=wanted.actor,
                operation=wanted.operation,
                object=wanted.object,
                outcome=wanted.outcome or "",
                since_ms=_access_ms(wanted.since),
                limit=limit,
                after=after,
            )
            return self._call(self._stub.ListAudit, request, QUICK)

        return gather(window, ask, lambda answer: answer.events)[1]

    def add_user(self, name: str, role: str, pattern: str, password: str) -> accounts.User:
        """The new user."""
        request = accounts.AddUserRequest(name=name, role=role, pattern=pattern, password=password)
        return self._call(self._stub.AddUser, request, QUICK)

    def update_user(self, name: str, role: str, pattern: str | None) -> accounts.User:
        """The user as changed; "" and None keep the role and the pattern."""
        return self._call(
            self._stub.UpdateUser, accounts.UpdateUserRequest(name=name, role=role, pattern=pattern), QUICK
        )

    def set_password(self, name: str, password: str) -> accounts.User:
        """The user whose password it is from now on."""
        return self._call(self._stub.SetPassword, accounts.SetPasswordRequest(name=name, password=password), QUICK)

    def remove_user(self, name: str) -> accounts.RemoveUserResponse:
        """The user who was removed."""
        return self._call(self._stub.RemoveUser, accounts.RemoveUserRequest(name=name), QUICK)

    def list_users(self, window: Window = ALL) -> ListRange[accounts.User]:
        """Users by name."""

        def ask(limit: int, after: str) -> accounts.ListUsersResponse:
            return self._call(self._stub.ListUsers, accounts.ListUsersRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.users)[1]

    def make_login_link(self) -> accounts.LoginLink:
        """A link that logs a browser in, once."""
        return self._call(self._stub.MakeLoginLink, accounts.MakeLoginLinkRequest(), QUICK)


def _access_ms(moment: datetime | None) -> int:
    return round(moment.timestamp() * 1000) if moment else 0


SLACK = timedelta(seconds=15)  # for the answer to arrive, on top of the time that the server may wait


class AdminClient(AccessCalls, ListCalls):
    """The methods of the AdminService; every one may raise an AmoroError."""

    def get_status(self) -> pb.GetStatusResponse:
        """The coordinator's version, start time and counts."""
        return self._call(self._stub.GetStatus, pb.GetStatusRequest(), QUICK)

    def list_conditions(self) -> Sequence[monitoring.Condition]:
        """The conditions that hold, the worst first."""
        return self._call(self._stub.ListConditions, monitoring.ListConditionsRequest(), QUICK).conditions

    def add_catalog(
        self,
        name: str,
        properties: Mapping[str, str],
        allowed_locations: Sequence[str],
        site_files: Mapping[str, str],
    ) -> pb.Catalog:
        """The catalog that was added."""
        request = pb.AddCatalogRequest(
            name=name, properties=properties, allowed_locations=allowed_locations, site_files=site_files
        )
        return self._call(self._stub.AddCatalog, request, TOUCHING)

    def get_catalog(self, name: str) -> pb.Catalog:
        """The catalog of that name."""
        return self._call(self._stub.GetCatalog, pb.GetCatalogRequest(name=name), QUICK)

    def update_catalog(
        self,
        name: str,
        properties: Mapping[str, str],
        unset: Sequence[str],
        allowed_locations: Sequence[str],
        removed_locations: Sequence[str],
        site_files: Mapping[str, str],
        removed_site_files: Sequence[str],
    ) -> pb.Catalog:
        """The catalog as it was changed."""
        request = pb.UpdateCatalogRequest(
            name=name,
            properties=properties,
            removed_properties=unset,
            allowed_locations=allowed_locations,
            removed_locations=removed_locations,
            site_files=site_files,
            removed_site_files=removed_site_files,
        )
        return self._call(self._stub.UpdateCatalog, request, TOUCHING)

    def remove_catalog(self, name: str) -> pb.RemoveCatalogResponse:
        """What was removed with the catalog."""
        return self._call(self._stub.RemoveCatalog, pb.RemoveCatalogRequest(name=name), TOUCHING)

    def list_catalogs(self, window: Window = ALL) -> ListRange[pb.Catalog]:
        """Catalogs by name."""

        def ask(limit: int, after: str) -> pb.ListCatalogsResponse:
            return self._call(self._stub.ListCatalogs, pb.ListCatalogsRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.catalogs)[1]

    def select_tables(self, names: Sequence[str]) -> pb.SelectTablesResponse:
        """The tables that match the names and patterns; without names, those of all catalogs."""
        return self._call(self._stub.SelectTables, pb.SelectTablesRequest(names=names), TOUCHING)

    def get_table(self, table: str, within: timedelta = TOUCHING) -> pb.Table:
        """What is known of the table."""
        return self._call(self._stub.GetTable, pb.GetTableRequest(table=table), within)

    def get_settings(self) -> Sequence[pb.Setting]:
        """Every setting of the coordinator."""
        return self._call(self._stub.GetSettings, pb.GetSettingsRequest(), QUICK).settings

    def get_table_properties(self, table: str) -> pb.GetTablePropertiesResponse:
        """The table's effective properties."""
        return self._call(self._stub.GetTableProperties, pb.GetTablePropertiesRequest(table=table), TOUCHING)

    def get_table_health(self, table: str) -> pb.TableHealth:
        """The health of the table's head."""
        return self._call(self._stub.GetTableHealth, pb.GetTableHealthRequest(table=table), READING)

    def list_table_files(self, table: str, window: Window) -> tuple[int, ListRange[pb.TableFile]]:
        """The snapshot's id (0 without one) and its live files."""
        snapshot_id = 0

        def ask(limit: int, after: str) -> pb.ListTableFilesResponse:
            nonlocal snapshot_id
            request = pb.ListTableFilesRequest(table=table, limit=limit, after=after, snapshot_id=snapshot_id)
            answer = self._call(self._stub.ListTableFiles, request, READING)
            snapshot_id = answer.snapshot_id
            return answer

        first, part = gather(window, ask, lambda answer: answer.files)
        return first.snapshot_id, part

    def list_snapshots(self, table: str, window: Window) -> ListRange[pb.Snapshot]:
        """The table's snapshots, the newest first."""

        def ask(limit: int, after: str) -> pb.ListSnapshotsResponse:
            request = pb.ListSnapshotsRequest(table=table, limit=limit, after=after)
            return self._call(self._stub.ListSnapshots, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.snapshots)[1]

    def get_state(self) -> pb.StateFacts:
        """The state database's size, schema and last backup."""
        return self._call(self._stub.GetState, pb.GetStateRequest(), READING)

    def backup_state(self, path: str) -> pb.BackupStateResponse:
        """Where the state was copied to."""
        return self._call(self._stub.BackupState, pb.BackupStateRequest(path=path), READING)

    def check_state(self) -> Sequence[str]:
        """The problems of the state database; empty when it is sound."""
        return self._call(self._stub.CheckState, pb.CheckStateRequest(), READING).problems

    def set_table_enabled(self, table: str, enabled: bool) -> pb.Table:
        """The table after optimizing was switched on or off."""
        request = pb.SetTableEnabledRequest(table=table, enabled=enabled)
        return self._call(self._stub.SetTableEnabled, request, TOUCHING)

    def table_changed(self, table: str, hint: str) -> pb.Table:
        """The table as it is known, once the coordinator has heard that it has changed."""
        return self._call(self._stub.TableChanged, pb.TableChangedRequest(table=table, hint=hint), TOUCHING)

    def block_table(self, table: str, operations: Sequence[str], hold: timedelta | None, reason: str) -> pb.Blocker:
        """The blocker that was taken; `hold` None: as the coordinator's settings say."""
        request = pb.BlockTableRequest(table=table, operations=operations, hold_ms=_client_ms(hold), reason=reason)
        return self._call(self._stub.BlockTable, request, TOUCHING)

    def renew_blocker(self, blocker_id: str, hold: timedelta | None) -> pb.Blocker:
        """The blocker with its new end; `hold` None: as long as it was taken for."""
        request = pb.RenewBlockerRequest(blocker_id=blocker_id, hold_ms=_client_ms(hold))
        return self._call(self._stub.RenewBlocker, request, QUICK)

    def release_blocker(self, blocker_id: str) -> pb.Blocker:
        """The blocker that was ended."""
        return self._call(self._stub.ReleaseBlocker, pb.ReleaseBlockerRequest(blocker_id=blocker_id), QUICK)

    def list_blockers(self, table: str = "", window: Window = ALL) -> ListRange[pb.Blocker]:
        """Active blockers, oldest first."""

        def ask(limit: int, after: str) -> pb.ListBlockersResponse:
            request = pb.ListBlockersRequest(table=table, limit=limit, after=after)
            return self._call(self._stub.ListBlockers, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.blockers)[1]

    def plan_table(
        self,
        table: str,
        type_: str = "",
        force: bool = False,
        where: str = "",
        within: timedelta | None = None,
        ordering: Ordering = AS_CONFIGURED,
    ) -> pb.Plan:
        """Raises WaitTimeout when reading the table takes longer than `within`."""
        request = pb.PlanTableRequest(table=table, type=type_, force=force, where=where, cluster=ordering.message)
        return self._call(self._stub.PlanTable, request, READING if within is None else within, late=WaitTimeout)

    def optimize_table(
        self,
        table: str,
        type_: str,
        force: bool,
        within: timedelta,
        where: str = "",
        ordering: Ordering = AS_CONFIGURED,
    ) -> pb.OptimizeTableResponse:
        """The process that was planned. Raises WaitTimeout when planning takes longer than `within`."""
        request = pb.OptimizeTableRequest(table=table, type=type_, force=force, where=where, cluster=ordering.message)
        return self._call(self._stub.OptimizeTable, request, within, late=WaitTimeout)

    def show_clustering(self, table: str) -> pb.Clustering:
        """How well the table is clustered, and what would be done next."""
        return self._call(self._stub.ShowClustering, pb.ShowClusteringRequest(table=table), LASTING)

    def suggest_columns(self, table: str) -> pb.SuggestedColumns:
        """Columns that the table may be clustered by."""
        return self._call(self._stub.SuggestColumns, pb.SuggestColumnsRequest(table=table), LASTING)

    def learn_scans(self, table: str, told: Sequence[ScanRecord]) -> pb.LearnedScans:
        """What was kept of a report of how the table is read."""
        scans = [
            pb.ToldScan(
                day=one.day.isoformat() if one.day else "",
                filters=[pb.ScanFilter(column=item.column, operator=item.operator.value) for item in one.filters],
                scans=one.scans,
                place=one.place,
                source=one.source,
            )
            for one in told
        ]
        return self._call(self._stub.LearnScans, pb.LearnScansRequest(table=table, scans=scans), TOUCHING)

    def start_process(self, process_id: str) -> pb.Process:
        """The process that a stored plan is from now on, without its tasks."""
        return self._call(self._stub.StartProcess, pb.StartProcessRequest(process_id=process_id), LASTING)

    def preview_maintenance(self, wanted: MaintenanceRequest, within: timedelta) -> pb.MaintainTableResponse:
        """What the action would do on the table. Raises WaitTimeout when that takes longer than `within`."""
        return self._call(self._stub.PreviewMaintenance, wanted.request, within, late=WaitTimeout)

    def maintain_table(self, wanted: MaintenanceRequest, within: timedelta) -> pb.MaintainTableResponse:
        """The process that was planned, or resumed. Raises WaitTimeout when planning takes longer than `within`."""
        method = self._stub.ConfirmMaintenance if wanted.confirm else self._stub.MaintainTable
        return self._call(method, wanted.request, within, late=WaitTimeout)

    def preview_undo(self, process_id: str, within: timedelta) -> pb.MaintainTableResponse:
        """The plan that would undo the process. Raises WaitTimeout when that takes longer than `within`."""
        return self._call(self._stub.PreviewUndo, pb.UndoRequest(process_id=process_id), within, late=WaitTimeout)

    def undo_process(self, process_id: str, within: timedelta) -> pb.MaintainTableResponse:
        """The process that undoes another one. Raises WaitTimeout when planning takes longer than `within`."""
        return self._call(self._stub.UndoProcess, pb.UndoRequest(process_id=process_id), within, late=WaitTimeout)

    def list_actions(self, table: str) -> pb.ListActionsResponse:
        """Every action available on the table, with its state."""
        return self._call(self._stub.ListActions, pb.ListActionsRequest(table=table), TOUCHING)

    def show_trash(
        self, process_id: str, window: Window = ALL
    ) -> tuple[pb.ShowTrashResponse, ListRange[pb.CondemnedFile]]:
        """What a process has condemned, and its files."""

        def ask(limit: int, after: str) -> pb.ShowTrashResponse:
            request = pb.ShowTrashRequest(process_id=process_id, limit=limit, after=after)
            return self._call(self._stub.ShowTrash, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.files)

    def restore_trash(self, process_id: str) -> pb.Trash:
        """The condemned files of a process that were restored."""
        return self._call(self._stub.RestoreTrash, pb.RestoreTrashRequest(process_id=process_id), TOUCHING)

    def hurry_trash(self, table: str, confirm: str) -> pb.HurryTrashResponse:
        """The table's condemned files, all due now: their waiting time is waived."""
        return self._call(self._stub.HurryTrash, pb.HurryTrashRequest(table=table, confirm=confirm), TOUCHING)

    def take_lease(
        self,
        table: str,
        snapshot_id: int,
        since: bool,
        hold: timedelta | None,
        holder: str,
        *,
        as_tag: bool = False,
    ) -> pb.Lease:
        """The lease that was taken; `hold` None: for a day."""
        request = pb.TakeLeaseRequest(
            table=table, snapshot_id=snapshot_id, since=since, hold_ms=_client_ms(hold), holder=holder, as_tag=as_tag
        )
        return self._call(self._stub.TakeLease, request, TOUCHING)

    def renew_lease(self, lease_id: str, hold: timedelta | None) -> pb.Lease:
        """The lease with its new end; `hold` None: in a day."""
        return self._call(
            self._stub.RenewLease, pb.RenewLeaseRequest(lease_id=lease_id, hold_ms=_client_ms(hold)), TOUCHING
        )

    def release_lease(self, lease_id: str) -> pb.Lease:
        """The lease that was ended."""
        return self._call(self._stub.ReleaseLease, pb.ReleaseLeaseRequest(lease_id=lease_id), TOUCHING)

    def verify_table(self, table: str, before: int, after: int, within: timedelta) -> pb.Verification:
        """Raises WaitTimeout when reading the table takes longer than `within`; the verification is then abandoned."""
        request = pb.VerifyTableRequest(table=table, before=before, after=after)
        try:
            return self._call(self._stub.VerifyTable, request, within, late=WaitTimeout)
        except WaitTimeout as late:
            raise WaitTimeout(
                f"Reading both sides of {table} did not end within {within.total_seconds():g} s, and was given up",
                hint="Nothing was changed. Give it more time with --timeout.",
            ) from late

    def list_processes(self, table: str = "", status: str = "", window: Window = ALL) -> ListRange[pb.Process]:
        """The newest first, without their tasks."""

        def ask(limit: int, after: str) -> pb.ListProcessesResponse:
            request = pb.ListProcessesRequest(table=table, status=status, limit=limit, after=after)
            return self._call(self._stub.ListProcesses, request, QUICK)

        return gather(window, ask, lambda answer: answer.processes)[1]

    def list_tasks(
        self, process_id: str, status: str = "", window: Window = ALL
    ) -> tuple[pb.Process, ListRange[pb.TaskInfo]]:
        """The process, without its tasks, and its tasks by number."""

        def ask(limit: int, after: str) -> pb.ListTasksResponse:
            request = pb.ListTasksRequest(process_id=process_id, status=status, limit=limit, after=after)
            return self._call(self._stub.ListTasks, request, QUICK)

        first, part = gather(window, ask, lambda answer: answer.tasks)
        return first.process, part

    def get_process(self, process_id: str, wait: timedelta = timedelta(0)) -> pb.Process:
        """The process without its tasks, when it ends or after `wait`, whichever comes first."""
        request = pb.GetProcessRequest(process_id=process_id, wait_ms=round(wait.total_seconds() * 1000))
        return self._call(self._stub.GetProcess, request, wait + SLACK)

    def with_tasks(self, process: pb.Process) -> pb.Process:
        """The same process with all its tasks, which the coordinator lists page by page."""
        if process.tasks_total > len(process.tasks):
            del process.tasks[:]
            process.tasks.extend(self.list_tasks(process.process_id)[1].items)
        return process

    def cancel_process(self, process_id: str) -> pb.Process:
        """The process that was cancelled, without its tasks."""
        return self._call(self._stub.CancelProcess, pb.CancelProcessRequest(process_id=process_id), QUICK)

    def list_optimizers(self, group: str = "", window: Window = ALL) -> ListRange[pb.Optimizer]:
        """Optimizers in the order of their registration."""

        def ask(limit: int, after: str) -> pb.ListOptimizersResponse:
            request = pb.ListOptimizersRequest(group=group, limit=limit, after=after)
            return self._call(self._stub.ListOptimizers, request, QUICK)

        return gather(window, ask, lambda answer: answer.optimizers)[1]

    def drain_optimizer(self, optimizer_id: str) -> pb.Optimizer:
        """The draining optimizer, which leaves when its tasks are done."""
        return self._call(self._stub.DrainOptimizer, pb.DrainOptimizerRequest(optimizer_id=optimizer_id), QUICK)

    def release_optimizer(self, optimizer_id: str) -> pb.ReleaseOptimizerResponse:
        """The optimizer that was unregistered, and how many of its tasks are planned again."""
        return self._call(self._stub.ReleaseOptimizer, pb.ReleaseOptimizerRequest(optimizer_id=optimizer_id), QUICK)

    def get_instance(self, id_: str) -> pb.InstanceStatus:
        """The instance, by its id or its optimizer's."""
        return self._call(self._stub.GetInstance, pb.GetInstanceRequest(id=id_), TOUCHING)

    def get_instance_logs(self, id_: str, lines: int) -> pb.InstanceLogs:
        """The last lines of the instance."""
        return self._call(self._stub.GetInstanceLogs, pb.GetInstanceLogsRequest(id=id_, lines=lines), TOUCHING)

    def kill_instance(self, id_: str) -> pb.InstanceStatus:
        """The instance that was killed."""
        return self._call(self._stub.KillInstance, pb.KillInstanceRequest(id=id_), TOUCHING)

    def create_group(self, name: str, policy: str, properties: Mapping[str, str], container: str) -> pb.Group:
        """The group that was added."""
        request = pb.CreateGroupRequest(name=name, scheduling_policy=policy, properties=properties, container=container)
        return self._call(self._stub.CreateGroup, request, QUICK)

    def list_groups(self, window: Window = ALL) -> ListRange[pb.Group]:
        """Groups by name."""

        def ask(limit: int, after: str) -> pb.ListGroupsResponse:
            return self._call(self._stub.ListGroups, pb.ListGroupsRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.groups)[1]

    def get_group(self, name: str) -> pb.Group:
        """The group of that name."""
        return self._call(self._stub.GetGroup, pb.GetGroupRequest(name=name), QUICK)

    def update_group(
        self, name: str, policy: str, properties: Mapping[str, str], unset: Sequence[str], container: str
    ) -> pb.Group:
        """The group as it was changed."""
        request = pb.UpdateGroupRequest(
            name=name,
            scheduling_policy=policy,
            properties=properties,
            removed_properties=unset,
            container=container,
        )
        return self._call(self._stub.UpdateGroup, request, QUICK)

    def scale_group(self, name: str, instances: int) -> pb.Group:
        """The group with its new number of instances."""
        return self._call(self._stub.ScaleGroup, pb.ScaleGroupRequest(name=name, instances=instances), QUICK)

    def remove_group(self, name: str) -> pb.RemoveGroupResponse:
        """The group that was removed."""
        return self._call(self._stub.RemoveGroup, pb.RemoveGroupRequest(name=name), QUICK)

    def create_token(self, name: str, kind: str, pattern: str = "", lasts: timedelta | None = None) -> pb.Token:
        """The new token with its secret, which is returned only here."""
        request = pb.CreateTokenRequest(name=name, kind=kind, pattern=pattern, lasts_ms=_client_ms(lasts))
        return self._call(self._stub.CreateToken, request, QUICK)

    def list_tokens(self, window: Window = ALL) -> ListRange[pb.Token]:
        """Tokens by name."""

        def ask(limit: int, after: str) -> pb.ListTokensResponse:
            return self._call(self._stub.ListTokens, pb.ListTokensRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.tokens)[1]

    def revoke_token(self, name: str) -> pb.RevokeTokenResponse:
        """The token that was revoked."""
        return self._call(self._stub.RevokeToken, pb.RevokeTokenRequest(name=name), QUICK)


def _client_ms(duration: timedelta | None) -> int:
    return 0 if duration is None else duration // timedelta(milliseconds=1)
