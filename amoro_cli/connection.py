"""Which coordinator a command asks, and the contract by which the command line starts programs."""

import json
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from amoro_core.errors import (
    AmoroError,
    CommitUnknown,
    Conflict,
    InvalidArgument,
    NotAllowed,
    NotFound,
    StateDirectoryLocked,
    TableRefused,
    WaitTimeout,
    WorkFailed,
    error_classes,
)
from amoro_core.model.principals import PLAIN, SECURE, Trust, given_token, read_token, token_problem
from amoro_core.model.text_sanitizing import Secret, is_text

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient


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
    jars: tuple[str, ...] = ()  # paths


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
class Finding:
    """The result of one check of doctor."""

    name: str
    ok: bool
    detail: str
    fix: str = ""  # what to do when it is not ok


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
        """Run a coordinator, by default with an optimizer, until a signal ends it."""

    def optimizer(self, options: OptimizerOptions) -> None:
        """Run an optimizer until a signal ends it."""

    def package(self, output: Path | None, include: tuple[str, ...], *, with_interpreter: bool) -> Package:
        """Pack what Spark's executors need to run tasks, with further distributions.

        Without `output` it is in the current directory, named after the platform it runs on.
        """

    def demo(self, seconds: int, directory: Path | None, *, plain: bool) -> None:
        """Show the main job for so long on a warehouse made for it, by default a temporary one; `plain` in lines."""

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


DEFAULT_ADDRESS = "127.0.0.1:1261"
_ADDRESS = re.compile(r"(?:grpcs://)?(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(\d{1,5})")
_PROBE = timedelta(seconds=2)
#: How often a command that waits for a state directory's lock checks whether the holder answers.
_LOOK = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CoordinatorAddress:
    """Which coordinator to use, from options and environment."""

    home: Path
    config: Path | None = None
    address: str | None = None
    token_file: Path | None = None
    token: Secret | None = field(default=None, repr=False)
    trust: Trust = PLAIN


@dataclass(slots=True)
class Connection:
    """A client, and whether its server (a coordinator, or a reader of its state) lives only for this command.

    When a coordinator that served another command ends with it, one in this process may take over.
    """

    client: "AdminClient"
    embedded: bool


def resolve_place(
    home: Path | None,
    config: Path | None,
    address: str | None,
    token_file: Path | None,
    environment: Mapping[str, str],
    trust: Trust = PLAIN,
) -> CoordinatorAddress:
    """The place: options first, then `AMORO_…` variables of the same name, then ~/.amoro. Raises InvalidArgument."""
    chosen = address or environment.get("AMORO_ADDRESS")
    return CoordinatorAddress(
        home=(home or Path(environment.get("AMORO_HOME") or "~/.amoro")).expanduser().absolute(),
        config=config,
        address=parse_address(chosen) if chosen else None,
        token_file=token_file,
        token=Secret(environment["AMORO_TOKEN"]) if environment.get("AMORO_TOKEN") else None,
        trust=Trust(
            trust.ca_file or _path(environment, "AMORO_CA_FILE"),
            trust.certificate_file or _path(environment, "AMORO_CERTIFICATE_FILE"),
            trust.key_file or _path(environment, "AMORO_KEY_FILE"),
        ),
    )


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    return Path(environment[name]).expanduser() if environment.get(name) else None


def parse_address(text: str) -> str:
    """The address unchanged when it is host:port or grpcs://host:port. Raises InvalidArgument otherwise."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not is_text(text) or not 0 < int(match[2]) < 65536:
        raise InvalidArgument(f"{text!r} is not an address", hint=f"Write host:port, such as {DEFAULT_ADDRESS}.")
    return match[0]


@contextmanager
def connect(  # noqa: C901 - three ways to an endpoint, side by side
    launcher: Launcher,
    place: CoordinatorAddress,
    lock_wait: timedelta,
    note: Callable[[str], None],
    *,
    lasting: bool = False,
    reading: bool = False,
) -> Iterator[Connection]:
    """The named coordinator, else that of the state directory, else one in this process, which is reported to `note`.

    `lasting`: for long work; the coordinator of another command is not used, since it ends with that command.
    `reading`: no coordinator is started in this process; the state is read directly, without waiting for the lock.
        Raises NotAllowed without a usable token, StateDirectoryLocked when the lock is not free after `lock_wait`.
    """
    with ExitStack() as stack:

        def running_or_embedded() -> tuple[Endpoint, bool]:
            """The endpoint of a running coordinator, else of one in this process; and whether it is in this process."""
            if (endpoint := running_endpoint(place, lasting=lasting)) is not None:
                return endpoint, False
            if reading:
                note(f"No coordinator runs on {place.home}: reading its state without one.")
                return stack.enter_context(launcher.reading(place.home, place.config)), True
            note(f"No coordinator runs on {place.home}: working in this process.")
            try:
                return stack.enter_context(launcher.embedded(place.home, place.config, timedelta(0))), True
            except StateDirectoryLocked as locked:
                note(f"Waiting: {locked.message}")
                return waited()

        def waited() -> tuple[Endpoint, bool]:
            """The same as soon as the lock is free, or whoever holds it answers: one that was starting may stay."""
            rest = lock_wait
            while (endpoint := running_endpoint(place, lasting=lasting)) is None:
                step = min(rest, _LOOK)
                try:
                    return stack.enter_context(launcher.embedded(place.home, place.config, step)), True
                except StateDirectoryLocked:
                    rest -= step
                    if not rest:
                        raise
            note(f"A coordinator runs on {place.home} now: using it.")
            return endpoint, False

        def after(lost: Endpoint) -> Endpoint | None:
            """The endpoint to continue with once the coordinator of another command no longer answers."""
            if not lost.passing:
                return None
            next_one, connection.embedded = running_or_embedded()
            return None if next_one.address == lost.address else next_one

        endpoint, embedded = running_or_embedded()
        connection = Connection(stack.enter_context(closing(_client(endpoint, after))), embedded)
        yield connection


def running_endpoint(place: CoordinatorAddress, *, lasting: bool = False) -> Endpoint | None:
    """The endpoint of a running coordinator; None when the state directory has none, or no `lasting` one.

    Raises InvalidArgument and NotAllowed for a bad token.
    """
    if place.address is not None:
        return Endpoint(place.address, _remote_token(place, place.address), place.trust)
    recorded = _recorded(place.home, lasting=lasting)
    if recorded is None or not _answers(recorded[0]):
        return None
    address, passing = recorded
    return Endpoint(address, _given_token(place) or _home_token(place.home), passing=passing)


def recorded_address(home: Path, *, lasting: bool = False) -> str | None:
    """The local address in coordinator.json; None without a valid file, and when its process is gone.

    Also None when a `lasting` one is needed and this one only serves another command.
    """
    recorded = _recorded(home, lasting=lasting)
    return None if recorded is None else recorded[0]


def _recorded(home: Path, *, lasting: bool) -> tuple[str, bool] | None:
    """The local address in coordinator.json, and whether the coordinator there only serves another command."""
    try:
        record = json.loads((home / "coordinator.json").read_bytes())
        passing = bool(record.get("passing"))
        # If the process is gone, another program may own the port by now and must not get the token.
        with suppress(PermissionError):  # of another user, and alive
            os.kill(int(record["pid"]), 0)
        if lasting and passing:
            return None
        return parse_address(record.get("local_address") or record["address"]), passing
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, InvalidArgument):
        return None  # left half-written by a crash: as good as missing


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE.total_seconds()).close()
    except OSError:
        return False
    return True


def _given_token(place: CoordinatorAddress) -> Secret | None:
    return given_token(place.token_file, place.token.reveal() if place.token else "", "admin")


def _remote_token(place: CoordinatorAddress, address: str) -> Secret:
    """The given token; for the coordinator of this machine's state directory, that directory's token."""
    given = _given_token(place)
    if given:
        return given
    if address.removeprefix(SECURE).rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]") and os.path.exists(
        place.home / "admin.token"
    ):
        return _home_token(place.home)
    raise NotAllowed(
        f"There is no token for the coordinator at {address}",
        hint="Give its admin token with --token-file or AMORO_TOKEN; it is in admin.token in its state directory.",
    )


def _home_token(home: Path) -> Secret:
    path = home / "admin.token"
    try:
        return read_token(path)
    except (OSError, ValueError) as error:
        raise NotAllowed(
            f"The admin token {path} can't be used: {token_problem(error)}",
            hint=f"Run this as the user who owns {home}, or give the token with --token-file or AMORO_TOKEN.",
        ) from error


def _client(endpoint: Endpoint, after: Callable[[Endpoint], Endpoint | None]) -> "AdminClient":
    # Imported here so that --help and wrong usage don't load gRPC. Its own log adds nothing to the errors.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from amoro_cli.client import AdminClient

    return AdminClient(endpoint, after)


def remote_error(code: str, exit_status: int, message: str, hint: str = "") -> AmoroError:
    """The error that a coordinator reports, of the class that has its code.

    For an unknown code, or one whose status differs here, a subclass of the class that has that status, with what was
    sent. An exit status that means success becomes 1.
    """
    status = exit_status or AmoroError.exit_status
    kind = _BY_CODE.get(code)
    if kind is None or kind.exit_status != status:
        family = _BY_STATUS.get(status, AmoroError)
        kind = type(family.__name__, (family,), {"code": code or family.code, "exit_status": status})
    return kind(message, reason="", hint=hint) if issubclass(kind, TableRefused) else kind(message, hint=hint)


#: The most general class of each exit status.
_BY_STATUS = {
    kind.exit_status: kind
    for kind in (WorkFailed, InvalidArgument, NotFound, NotAllowed, Conflict, TableRefused, CommitUnknown, WaitTimeout)
}
_BY_CODE = error_classes()
