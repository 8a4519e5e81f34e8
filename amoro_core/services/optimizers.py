"""Optimizers: registrations and heartbeats."""

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from amoro_core.errors import InvalidArgument, OptimizerNotFound, UnknownToken
from amoro_core.logger import get_logger
from amoro_core.model.group_config import parse_group
from amoro_core.model.history_events import About, EventKind
from amoro_core.model.paging import Page, Window, cut, page_limit
from amoro_core.model.principals import hash_token
from amoro_core.model.processes import Attempt, Optimizer, ResourceGroup, uuid7
from amoro_core.model.task_payload import REWRITE
from amoro_core.store import groups
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.journal import append_event

PREFIX_LENGTH = 6

NO_CORES: Mapping[Attempt, int] = MappingProxyType({})
log = get_logger("amoro.optimizers")

#: Takes over the attempts of an earlier registration within the write that stores the new one.
Adopt = Callable[[Connection, str, str, Sequence[Attempt]], list[Attempt]]


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to a registration; the token is shown only here."""

    optimizer: Optimizer
    token: str = field(repr=False)
    adopted: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class OptimizerLiveness:
    """State of a live optimizer that is kept in memory only."""

    touched_s: float  # monotonic
    touched_at: datetime | None  # None: not since this coordinator started
    progress: Mapping[Attempt, tuple[int, int]]  # rows done, rows in all
    core_ms: Mapping[Attempt, int] = field(default_factory=dict)  # CPU time so far, if reported


class OptimizerService:
    """Registrations, kept in the store, and heartbeats, kept in memory."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        adopt: Adopt,
        heartbeat_timeout: timedelta,
        when_leaving: Callable[[], None] = lambda: None,
    ) -> None:
        """`when_leaving` is called when an optimizer is to leave or was removed, to end its open polls."""
        self._store = store
        self._when_leaving = when_leaving
        self._polls: Counter[str] = Counter()  # open polls that are heartbeats
        self._clock = clock
        self._monotonic = monotonic
        self._adopt = adopt
        self._timeout = heartbeat_timeout
        self._lock = threading.Lock()
        self._lives: dict[str, OptimizerLiveness] = {}
        self._by_hash: dict[str, Optimizer] = {}
        self._hash_of: dict[str, str] = {}
        self._released: set[str] = set()
        for optimizer in store.read(groups.list_optimizers):
            # No optimizer counts as lost before a full timeout since the start.
            self._remember(optimizer, None)

    def register(
        self,
        *,
        group: str,
        threads: int,
        memory_bytes: int,
        labels: Mapping[str, str],
        heartbeat_interval: timedelta,
        running: Sequence[Attempt] = (),
        previous_id: str = "",
        kinds: tuple[str, ...] = (REWRITE,),
        max_cluster_bytes: int = 0,
    ) -> Registered:
        """Register an optimizer in a group; attempts that it still runs continue under the new registration.

        A released one returns as draining: it gets no tasks, and its first heartbeat tells it to leave. Raises
        GroupNotFound, InvalidArgument (threads, heartbeat interval, less memory than the group requires).
        """
        if threads < 1:
            raise InvalidArgument(f"an optimizer needs at least one thread, not {threads}")
        if heartbeat_interval >= self._timeout:
            raise InvalidArgument(
                f"heartbeat interval {heartbeat_interval.total_seconds():g} s is not below "
                f"the coordinator's timeout of {self._timeout.total_seconds():g} s",
                hint="Give it a shorter --heartbeat-interval, or the coordinator a longer heartbeat-timeout.",
            )
        now = self._clock()
        token = f"amo_{secrets.token_urlsafe(32)}"
        optimizer = Optimizer(
            optimizer_id=uuid7(now),
            token_hash=hash_token(token),
            group=group,
            threads=threads,
            memory_bytes=memory_bytes,
            labels=tuple(sorted(labels.items())),
            registered_at=now,
            draining=previous_id in self._released,
            kinds=kinds,
            max_cluster_bytes=max(0, max_cluster_bytes),
        )

        def enter(db: Connection) -> list[Attempt]:
            _refuse_small(groups.get(db, group), threads, memory_bytes)
            groups.add_optimizer(db, optimizer)
            words = f"optimizer {optimizer.optimizer_id} joined group {group} with {threads} threads"
            about = About(optimizer_id=optimizer.optimizer_id, group=group)
            append_event(db, EventKind.JOINED, words, about, now, {"threads": threads})
            return self._adopt(db, optimizer.optimizer_id, previous_id, running)

        adopted = self._store.write(enter)
        self._remember(optimizer, now)
        log.info(
            "optimizer.registered",
            optimizer=optimizer.optimizer_id,
            group=group,
            threads=threads,
            adopted=len(adopted),
        )
        return Registered(optimizer, token, tuple(adopted))

    def authenticate(self, token: str) -> Optimizer:
        """The optimizer with that token. Raises UnknownToken."""
        with self._lock:
            optimizer = self._by_hash.get(hash_token(token))
        if optimizer is None:
            raise UnknownToken("the optimizer's token is not known; register anew")
        return optimizer

    def touch(
        self,
        optimizer_id: str,
        threads: int,
        progress: Mapping[Attempt, tuple[int, int]],
        core_ms: Mapping[Attempt, int] = NO_CORES,
    ) -> None:
        """Note a heartbeat; a changed number of threads is stored."""
        with self._lock:
            known = self._by_hash.get(self._hash_of.get(optimizer_id, ""))
            if known is None:
                raise UnknownToken("the optimizer's token is not known; register anew")
            self._lives[optimizer_id] = OptimizerLiveness(self._monotonic(), self._clock(), progress, core_ms)
        if threads >= 1 and threads != known.threads:
            self._change(optimizer_id, lambda kept: replace(kept, threads=threads))

    @contextmanager
    def polling(self, optimizer_id: str) -> Iterator[None]:
        """Count the optimizer as alive while a poll that is a heartbeat is open, and note a heartbeat when it ends."""
        with self._lock:
            self._polls[optimizer_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._polls[optimizer_id] -= 1
                if not self._polls[optimizer_id]:
                    del self._polls[optimizer_id]
                if (life := self._lives.get(optimizer_id)) is not None:
                    self._lives[optimizer_id] = replace(life, touched_s=self._monotonic(), touched_at=self._clock())

    def drain(self, optimizer_id: str) -> tuple[Optimizer, OptimizerLiveness]:
        """Drain an optimizer: it gets no more tasks, finishes its own and leaves. Idempotent.

        The id may be a prefix, as for `find`. Raises OptimizerNotFound, InvalidArgument.
        """
        optimizer, life = self.find(optimizer_id)
        changed = self._change(optimizer.optimizer_id, lambda kept: replace(kept, draining=True))
        log.info("optimizer.dismissed", optimizer=optimizer.optimizer_id)
        self._when_leaving()
        return changed, life

    def find(self, optimizer_id: str) -> tuple[Optimizer, OptimizerLiveness]:
        """The registered optimizer with that id, or with that unique prefix of six characters or more.

        Raises OptimizerNotFound, InvalidArgument.
        """
        if len(optimizer_id) < PREFIX_LENGTH:
            raise InvalidArgument(
                f"{optimizer_id!r} is too short for an optimizer: give {PREFIX_LENGTH} characters or more"
            )
        found = [pair for pair in self.list_optimizers() if pair[0].optimizer_id.startswith(optimizer_id)]
        if not found:
            raise OptimizerNotFound(
                f"optimizer {optimizer_id} is not registered", hint="`amoro optimizer list` shows the registered ones."
            )
        if len(found) > 1:
            raise InvalidArgument(f"more than one optimizer begins with {optimizer_id!r}", hint="Give more characters.")
        return found[0]

    def _change(self, optimizer_id: str, change: Callable[[Optimizer], Optimizer]) -> Optimizer:
        """Change the registration in the store, then in memory. Raises UnknownToken when it has ended."""
        changed = self._store.write(
            lambda db: groups.save_optimizer(db, change(groups.get_optimizer(db, optimizer_id)))
        )
        with self._lock:
            known = self._by_hash.get(changed.token_hash)
            if known is not None:
                self._by_hash[changed.token_hash] = change(known)
        return changed

    def forget(self, optimizer_id: str) -> None:
        """Invalidate an optimizer's token, after its registration ended in the store."""
        with self._lock:
            self._lives.pop(optimizer_id, None)
            self._by_hash.pop(self._hash_of.pop(optimizer_id, ""), None)
        self._when_leaving()

    def release(self, optimizer_id: str, dismiss: Callable[[], int]) -> int:
        """End an optimizer's registration by `dismiss`, for good: if it is alive, it must leave.

        Returns what `dismiss` does: how many tasks the optimizer held.
        """
        with self._lock:
            self._released.add(optimizer_id)  # first: an optimizer that learns of the end registers again immediately
        held = dismiss()
        self.forget(optimizer_id)
        log.info("optimizer.released", optimizer=optimizer_id)
        return held

    def silent(self) -> list[str]:
        """Optimizers without a heartbeat for longer than the timeout."""
        limit = self._monotonic() - self._timeout.total_seconds()
        with self._lock:
            return sorted(
                optimizer_id
                for optimizer_id, life in self._lives.items()
                if life.touched_s < limit and not self._polls[optimizer_id]
            )

    def list_optimizers(self) -> list[tuple[Optimizer, OptimizerLiveness]]:
        """All registered optimizers, oldest first."""
        with self._lock:
            pairs = [(item, self._lives[item.optimizer_id]) for item in self._by_hash.values()]
        return sorted(pairs, key=lambda pair: pair[0].optimizer_id)

    def page(self, group: str, window: Window) -> Page[tuple[Optimizer, OptimizerLiveness]]:
        """Registered optimizers after an id, of a group or ("") all, in the order of their registration."""

        def read(db: Connection) -> Page[Optimizer]:
            most = page_limit(window.limit)
            found = groups.list_optimizer_page(db, group, window.after, most + 1)
            return cut(found, most, groups.count_optimizers(db, group), lambda item: item.optimizer_id)

        page = self._store.read(read)
        with self._lock:
            # One that registers at this moment is stored before it is remembered.
            lives = {one.optimizer_id: self._lives.get(one.optimizer_id) for one in page.items}
        return page.mapped(
            lambda item: (item, lives[item.optimizer_id] or OptimizerLiveness(self._monotonic(), None, {}))
        )

    def core_ms(self) -> dict[Attempt, int]:
        """CPU time of all cores that running attempts have reported so far."""
        with self._lock:
            return {attempt: spent for life in self._lives.values() for attempt, spent in life.core_ms.items()}

    def progress(self) -> dict[Attempt, tuple[int, int]]:
        """Rows done and in all of every running attempt, as last reported."""
        with self._lock:
            return {attempt: done for life in self._lives.values() for attempt, done in life.progress.items()}

    def _remember(self, optimizer: Optimizer, touched_at: datetime | None) -> None:
        with self._lock:
            self._lives[optimizer.optimizer_id] = OptimizerLiveness(self._monotonic(), touched_at, {})
            self._by_hash[optimizer.token_hash] = optimizer
            self._hash_of[optimizer.optimizer_id] = optimizer.token_hash


def _refuse_small(group: ResourceGroup, threads: int, memory_bytes: int) -> None:
    """Raise InvalidArgument for an optimizer whose threads have less memory than the group's `memory`."""
    least = parse_group(group.properties).memory_per_thread
    if least is not None and memory_bytes < least * threads:
        raise InvalidArgument(
            f"group {group.name!r} asks for {least / 1024**2:g} MB of memory for each thread, the optimizer has "
            f"{memory_bytes / threads / 1024**2:g} MB",
            hint=f"Start it with --memory {-(-least // 1024**2)}MB, or in another group.",
        )
