"""Optimizers: registrations and heartbeats."""

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from amoro_core.documents.formatting import many
from amoro_core.errors import InvalidArgument, OptimizerNotFound, UnknownToken
from amoro_core.logger import get_logger
from amoro_core.model.group_config import parse_group
from amoro_core.model.history_events import About, EventKind
from amoro_core.model.paging import Page, Window, page_limit
from amoro_core.model.principals import hash_token
from amoro_core.model.processes import Attempt, Optimizer, pick, uuid7
from amoro_core.model.task_payload import REWRITE
from amoro_core.store import groups
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.journal import append_event
from amoro_core.transactions.task_reports import adopt

log = get_logger("amoro.optimizers")


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


@dataclass
class OptimizerService:
    """Registrations, kept in the store, and heartbeats, kept in memory."""

    store: Store
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    heartbeat_timeout: timedelta
    when_leaving: Callable[[], None]  # called when one is to leave or was removed, to end its open polls
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _lives: dict[str, OptimizerLiveness] = field(init=False, default_factory=dict)
    _optimizers: dict[str, Optimizer] = field(init=False, default_factory=dict)
    _ids: dict[str, str] = field(init=False, default_factory=dict)  # by the hash of the token
    _released: set[str] = field(init=False, default_factory=set)
    _polls: Counter[str] = field(init=False, default_factory=Counter)  # open polls that are heartbeats

    def __post_init__(self) -> None:
        for optimizer in self.store.read(groups.list_optimizers):
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
        if heartbeat_interval >= self.heartbeat_timeout:
            raise InvalidArgument(
                f"heartbeat interval {heartbeat_interval.total_seconds():g} s is not below "
                f"the coordinator's timeout of {self.heartbeat_timeout.total_seconds():g} s",
                hint="Give it a shorter --heartbeat-interval, or the coordinator a longer heartbeat-timeout.",
            )
        now = self.clock()
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
            least = parse_group(groups.get(db, group).properties).memory_per_thread
            if least is not None and memory_bytes < least * threads:
                raise InvalidArgument(
                    f"group {group!r} asks for {least / 1024**2:g} MB of memory for each thread, the optimizer has "
                    f"{memory_bytes / threads / 1024**2:g} MB",
                    hint=f"Start it with --memory {-(-least // 1024**2)}MB, or in another group.",
                )
            groups.add_optimizer(db, optimizer)
            words = f"optimizer {optimizer.optimizer_id} joined group {group} with {many(threads, 'thread')}"
            about = About(optimizer_id=optimizer.optimizer_id, group=group)
            append_event(db, EventKind.JOINED, words, about, now, {"threads": threads})
            # The rest stays with the earlier registration until that is lost.
            return adopt(db, optimizer.optimizer_id, previous_id, running, self.clock())

        adopted = self.store.write(enter)
        self._remember(optimizer, now)
        log.info(
            "optimizer.registered", optimizer=optimizer.optimizer_id, group=group, threads=threads, adopted=len(adopted)
        )
        return Registered(optimizer, token, tuple(adopted))

    def authenticate(self, token: str) -> Optimizer:
        """The optimizer with that token. Raises UnknownToken."""
        with self._lock:
            optimizer = self._optimizers.get(self._ids.get(hash_token(token), ""))
        if optimizer is None:
            raise UnknownToken("the optimizer's token is not known; register anew")
        return optimizer

    def touch(
        self,
        optimizer_id: str,
        threads: int,
        progress: Mapping[Attempt, tuple[int, int]],
        core_ms: Mapping[Attempt, int] = MappingProxyType({}),
    ) -> None:
        """Note a heartbeat; a changed number of threads is stored."""
        with self._lock:
            optimizer = self._optimizers.get(optimizer_id)
            if optimizer is None:
                raise UnknownToken("the optimizer's token is not known; register anew")
            self._lives[optimizer_id] = OptimizerLiveness(self.monotonic(), self.clock(), progress, core_ms)
        if threads >= 1 and threads != optimizer.threads:
            self._change(optimizer_id, lambda optimizer: replace(optimizer, threads=threads))

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
                    self._lives[optimizer_id] = replace(life, touched_s=self.monotonic(), touched_at=self.clock())

    def drain(self, optimizer_id: str) -> tuple[Optimizer, OptimizerLiveness]:
        """Drain an optimizer: it gets no more tasks, finishes its own and leaves. Idempotent.

        The id may be a prefix, as for `find`. Raises OptimizerNotFound, InvalidArgument.
        """
        optimizer, life = self.find(optimizer_id)
        changed = self._change(optimizer.optimizer_id, lambda item: replace(item, draining=True))
        log.info("optimizer.dismissed", optimizer=optimizer.optimizer_id)
        self.when_leaving()
        return changed, life

    def find(self, optimizer_id: str) -> tuple[Optimizer, OptimizerLiveness]:
        """The registered optimizer with that id, or whose id begins or ends so.

        Raises OptimizerNotFound, InvalidArgument.
        """
        result = pick(optimizer_id, self.list_optimizers(), "an optimizer", lambda pair: (pair[0].optimizer_id,))
        if result is None:
            raise OptimizerNotFound(
                f"optimizer {optimizer_id} is not registered", hint="`amoro optimizer list` shows the registered ones."
            )
        return result

    def _change(self, optimizer_id: str, change: Callable[[Optimizer], Optimizer]) -> Optimizer:
        """Change the registration in the store, then in memory. Raises UnknownToken when it has ended."""
        changed = self.store.write(lambda db: groups.save_optimizer(db, change(groups.get_optimizer(db, optimizer_id))))
        with self._lock:
            optimizer = self._optimizers.get(optimizer_id)
            if optimizer is not None:
                self._optimizers[optimizer_id] = change(optimizer)
        return changed

    def forget(self, optimizer_id: str) -> None:
        """Invalidate an optimizer's token, after its registration ended in the store."""
        with self._lock:
            self._lives.pop(optimizer_id, None)
            if (optimizer := self._optimizers.pop(optimizer_id, None)) is not None:
                del self._ids[optimizer.token_hash]
        self.when_leaving()

    def mark_released(self, optimizer_id: str) -> None:
        """Let an optimizer, if it is alive and registers again, leave at once."""
        with self._lock:
            self._released.add(optimizer_id)
        log.info("optimizer.released", optimizer=optimizer_id)

    def silent(self) -> list[str]:
        """Optimizers without a heartbeat for longer than the timeout."""
        limit = self.monotonic() - self.heartbeat_timeout.total_seconds()
        with self._lock:
            return sorted(
                optimizer_id
                for optimizer_id, life in self._lives.items()
                if life.touched_s < limit and not self._polls[optimizer_id]
            )

    def list_optimizers(self) -> list[tuple[Optimizer, OptimizerLiveness]]:
        """All registered optimizers, oldest first."""
        with self._lock:
            pairs = [(item, self._lives[item.optimizer_id]) for item in self._optimizers.values()]
        return sorted(pairs, key=lambda pair: pair[0].optimizer_id)

    def page(self, group: str, window: Window) -> Page[tuple[Optimizer, OptimizerLiveness]]:
        """Registered optimizers after an id, of a group or ("") all, in the order of their registration."""
        most = page_limit(window.limit)
        page = self.store.read(lambda db: groups.optimizer_page(db, group, window.after, most))
        with self._lock:
            # One that registers at this moment is stored before it is remembered.
            lives = {optimizer.optimizer_id: self._lives.get(optimizer.optimizer_id) for optimizer in page.items}
        return page.mapped(
            lambda item: (item, lives[item.optimizer_id] or OptimizerLiveness(self.monotonic(), None, {}))
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
            self._lives[optimizer.optimizer_id] = OptimizerLiveness(self.monotonic(), touched_at, {})
            self._optimizers[optimizer.optimizer_id] = optimizer
            self._ids[optimizer.token_hash] = optimizer.optimizer_id
