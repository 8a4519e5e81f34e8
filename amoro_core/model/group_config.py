"""Optimizer groups: their properties, and the resources of their containers."""

import difflib
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from amoro_core.errors import InvalidArgument
from amoro_core.model.properties import parse_duration, parse_memory

MEMORY = "memory"
MAX_INPUT_PER_THREAD = "max-input-file-size-per-thread"
TABLE_METRICS = "table-metrics"
PRIORITY_AGING = "priority-aging"
KEYS = (MEMORY, MAX_INPUT_PER_THREAD, TABLE_METRICS, PRIORITY_AGING)
_CLOSE = 0.83  # similarity: thred suggests threads, my-address does not suggest address
T = TypeVar("T")
D = TypeVar("D")
_MIB = 1024 * 1024
DEFAULT_MAX_INPUT_BYTES = 512 * _MIB
DEFAULT_AGING = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The typed properties of a group, in bytes."""

    memory_per_thread: int | None = None  # the minimum that an optimizer of the group must offer
    max_input_per_thread: int = DEFAULT_MAX_INPUT_BYTES  # of one process
    has_table_metrics: bool = False  # metrics for each of its tables
    priority_aging: timedelta = DEFAULT_AGING  # after each such wait, work counts as of the next higher class


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a group."""

    threads: int
    max_input_per_thread: int


def parse_group(properties: Iterable[tuple[str, str]]) -> GroupConfig:
    """The configuration in the properties. Raises InvalidArgument naming key and value.

    As in Amoro, a bare number means megabytes for `memory` and bytes for `max-input-file-size-per-thread`; both may
    have a unit.
    """
    values = dict(properties)
    memory = _parsed(values, MEMORY, _megabytes, None)
    most = _parsed(values, MAX_INPUT_PER_THREAD, parse_memory, DEFAULT_MAX_INPUT_BYTES)
    value = values.get(TABLE_METRICS, "false").strip().lower()
    if value not in ("true", "false"):
        raise InvalidArgument(f"{TABLE_METRICS} has the malformed value {values[TABLE_METRICS]!r}: it is true or false")
    aging = _parsed(values, PRIORITY_AGING, parse_duration, DEFAULT_AGING)
    return GroupConfig(memory, most, value == "true", aging)


def refuse_misspelt(keys: Iterable[str], names: Collection[str]) -> None:
    """Raise InvalidArgument for a key that is almost a known one; any others are free for people and tools."""
    for key in keys:
        if key not in names and (close := difflib.get_close_matches(key, names, n=1, cutoff=_CLOSE)):
            raise InvalidArgument(f"the property {key!r} is not known", hint=f"Did you mean {close[0]}?")


def _parsed(values: dict[str, str], key: str, parse: Callable[[str], T], default: D) -> T | D:
    """The parsed value of the key, or the default. Raises InvalidArgument naming key and value."""
    if key not in values:
        return default
    try:
        return parse(values[key])
    except ValueError as error:
        raise InvalidArgument(f"{key} has the malformed value {values[key]!r}: {error}") from error


def _megabytes(text: str) -> int:
    return parse_memory(f"{text}MB" if text.strip().isdecimal() else text)


#: The container of a group whose optimizers are started by hand.
EXTERNAL = "external"
#: The label under which an optimizer registers what it was started as (`-id`).
RESOURCE_LABEL = "resource-id"
MAX_INSTANCES = 1000

THREADS = "threads"
MIN_INSTANCES = "min-instances"
MAX_FAILED_STARTS = "max-failed-starts"
ON_DEMAND = "max-instances"
IDLE_TIMEOUT = "idle-timeout"
START_TIMEOUT = "start-timeout"
DRAIN_TIMEOUT = "drain-timeout"
ADDRESS = "address"
TOKEN_FILE = "token-file"  # noqa: S105 - a key
CA_FILE = "ca-file"
CONTAINER_KEYS = (
    THREADS, MIN_INSTANCES, ON_DEMAND, IDLE_TIMEOUT, MAX_FAILED_STARTS, START_TIMEOUT, DRAIN_TIMEOUT,
    ADDRESS, TOKEN_FILE, CA_FILE,
)  # fmt: skip


class ResourceState(StrEnum):
    """The state of an instance."""

    STARTING = "starting"  # recorded before it is started; its optimizer is not registered
    RUNNING = "running"  # its optimizer is registered
    DRAINING = "draining"  # it was asked to leave
    STOPPING = "stopping"  # it is being killed


@dataclass(frozen=True, slots=True)
class Resource:
    """An instance that a container started, or is about to."""

    resource_id: str  # UUIDv7, which its optimizer gets as `-id`
    group: str
    container: str
    state: ResourceState
    started_at: datetime
    since: datetime  # when it entered its state
    handle: str = ""  # the container's id for it; "": the coordinator died before it was recorded
    cause: str = ""  # of its end, or why it was asked to leave
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Scaling:
    """The target number of instances of a group, and its failed starts."""

    instances: int = 0
    failed_starts: int = 0  # in a row
    retry_at: datetime | None = None
    failure: str = ""  # of the last failed start


@dataclass(frozen=True, slots=True)
class ScalingConfig:
    """The properties of a group that configure its instances."""

    threads: int | None = None  # of each; None: as many as there are cores
    min_instances: int = 0
    max_instances: int | None = None  # None: only those that are always kept; else more are started on demand
    idle_timeout: timedelta = timedelta(minutes=5)  # how long one that was started on demand stays without a task
    max_failed_starts: int = 5
    start_timeout: timedelta = timedelta(minutes=3)
    drain_timeout: timedelta = timedelta(minutes=15)

    @property
    def threads_of_each(self) -> int:
        """The threads of an instance; without the property, as many as this machine has cores."""
        return self.threads or os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Launch:
    """An optimizer to start."""

    resource_id: str
    group: str
    address: str  # where it finds the coordinator
    token_file: Path  # on the coordinator's machine, with the enrolment token
    threads: int | None
    memory_bytes: int  # of each thread
    heartbeat_interval: timedelta
    properties: tuple[tuple[str, str], ...]  # the group's


class Liveness(StrEnum):
    """Whether the process of an instance is alive."""

    ALIVE = "alive"
    ENDED = "ended"
    UNKNOWN = "unknown"  # it can't be told now


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of an instance as reported by its container."""

    liveness: Liveness
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """A resource, and the optimizer that it is registered as ("": none)."""

    resource: Resource
    optimizer_id: str


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """An instance, and its state as reported by its container."""

    instance: Instance
    observed: Observation


@dataclass(frozen=True, slots=True)
class InstancesView:
    """The instances of a group."""

    wanted: int
    instances: tuple[Instance, ...]  # the oldest first
    failed_starts: int
    retry_at: datetime | None
    failure: str
    has_given_up: bool
    most: int | None = None  # that are started on demand


def parse_scaling(properties: Iterable[tuple[str, str]]) -> ScalingConfig:
    """The configuration in the properties. Raises InvalidArgument naming key and value."""
    values, default = dict(properties), ScalingConfig()
    parsed = ScalingConfig(
        threads=_parsed(values, THREADS, _count(1), None),
        min_instances=_parsed(values, MIN_INSTANCES, _count(0), 0),
        max_instances=_parsed(values, ON_DEMAND, _count(1), None),
        idle_timeout=_parsed(values, IDLE_TIMEOUT, parse_duration, default.idle_timeout),
        max_failed_starts=_parsed(values, MAX_FAILED_STARTS, _count(1), default.max_failed_starts),
        start_timeout=_parsed(values, START_TIMEOUT, parse_duration, default.start_timeout),
        drain_timeout=_parsed(values, DRAIN_TIMEOUT, parse_duration, default.drain_timeout),
    )
    least, most = parsed.min_instances, parsed.max_instances
    if most is None and IDLE_TIMEOUT in values:
        raise InvalidArgument(f"{IDLE_TIMEOUT} needs {ON_DEMAND}: only optimizers on demand leave when they are idle")
    if most is not None and least > most:
        raise InvalidArgument(f"{MIN_INSTANCES}={least} is more than {ON_DEMAND}={most}")
    return parsed


_MOST_DIGITS = 18  # Python refuses to read thousands of them


def _count(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        digits = text.strip()
        if not digits.isdecimal() or len(digits) > _MOST_DIGITS or not least <= int(digits) <= MAX_INSTANCES:
            raise ValueError(f"it is a number from {least} to {MAX_INSTANCES}")
        return int(digits)

    return parse
