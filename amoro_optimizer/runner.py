"""The optimizer: registration, heartbeats, polls, and the threads that execute tasks."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from amoro_core.errors import (
    AmoroError,
    AttemptAbandoned,
    CoordinatorUnavailable,
    OptimizerError,
    UnknownToken,
    UnknownWork,
)
from amoro_core.failpoints import failpoint
from amoro_core.logger import get_logger
from amoro_core.model.principals import PLAIN, Trust
from amoro_core.model.processes import Attempt
from amoro_core.model.task_payload import WorkResult
from amoro_core.model.text_sanitizing import Secret, briefly
from amoro_optimizer import session as sessions
from amoro_optimizer.client import Client, PolledTask
from amoro_optimizer.execution import Backend, BlobName, Run, steady_s
from amoro_optimizer.session import Registration, Session

log = get_logger("amoro.optimizer")


class Threads:
    """Threads with numbers from 1, of which the first `count` take tasks; the others pause."""

    def __init__(self, count: int, run: Callable[[PolledTask], PolledTask | None]) -> None:
        """`run` does a task and returns the thread's next one, if there is one already."""
        self._run = run
        self.count = count
        self._workers: list[threading.Thread] = []
        self._inboxes: list[queue.SimpleQueue[PolledTask | None]] = []  # None: the thread ends
        self._free: set[int] = set()
        self._changed = threading.Condition()
        self._is_over = False

    def resize(self, count: int) -> None:
        """Let the first `count` threads take tasks: start missing ones; surplus ones finish their attempt and pause."""
        with self._changed:
            if self._is_over:
                return
            if count != self.count:
                log.info("optimizer.resized", threads=count, before=self.count)
            self.count = count
            # Started under the lock, so that joining the workers never meets one that has not started.
            while len(self._workers) < count:
                number = len(self._workers) + 1
                self._inboxes.append(queue.SimpleQueue())
                self._workers.append(threading.Thread(target=self._work, args=(number,), name=f"optimizer-{number}"))
                self._workers[-1].start()
            self._changed.notify_all()

    def wait_for_free(self, timeout_s: float) -> list[int]:
        """Numbers of the threads that wait for a task; empty after that time, or once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._free_threads(), timeout=timeout_s)
            return [] if self._is_over else self._free_threads()

    def give(self, tasks: Sequence[PolledTask]) -> None:
        """Let threads that wait begin these tasks."""
        with self._changed:
            self._free -= {task.thread_id for task in tasks}
            for task in tasks:
                self._inboxes[task.thread_id - 1].put(task)

    def close(self) -> None:
        """End `wait_for_free`, and start no more threads."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def end(self) -> tuple[threading.Thread, ...]:
        """Let each thread end once it has done what it was given; the threads, to be joined."""
        with self._changed:
            for inbox in self._inboxes:
                inbox.put(None)
            return tuple(self._workers)

    def _free_threads(self) -> list[int]:
        return sorted(number for number in self._free if number <= self.count)

    def _work(self, number: int) -> None:
        while True:
            with self._changed:
                self._free.add(number)
                self._changed.notify_all()
            task = self._inboxes[number - 1].get()
            if task is None:
                return
            while task is not None:
                task = self._run(task)


POLL_WAIT_S = 20.0
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
#: How long reporting a result to an unreachable coordinator is retried after the optimizer was stopped.
DELIVERY_WINDOW_S = 30.0


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """The configuration of an optimizer; `memory_bytes` is per thread."""

    address: str
    group: str
    threads: int
    memory_bytes: int
    enrolment_token: Secret = field(repr=False)
    heartbeat_interval_s: float
    labels: Mapping[str, str]
    drain_timeout_s: float = 600.0
    trust: Trust = PLAIN
    is_beside: bool = False  # in the coordinator's process


class Runner:
    """An optimizer: a heartbeat, and N threads with an attempt each; N is `capacity`'s at each heartbeat, if given."""

    def __init__(self, config: OptimizerConfig, backend: Backend, capacity: Callable[[], int] | None = None) -> None:
        self._config = config
        self._backend = backend
        self._capacity = capacity
        self._threads = Threads(config.threads, self._run)
        self._is_polling = False
        self._stopping = threading.Event()
        self._abandon_all = threading.Event()
        self._client = Client(config.address, config.trust, stopping=self._stopping)
        self._lock = threading.Lock()
        self._registering = threading.Lock()
        self._session = Session()
        self._previous_id = ""
        self._timeout_s = 0.0  # after which the coordinator counts a silent optimizer as lost
        self._held_until_s = 0.0  # by `steady_s`: until when it surely counts this one as alive

    def stop(self, *, at_once: bool = False) -> None:
        """Drain: running attempts may finish, and no new ones are taken. A second call abandons them."""
        if at_once:
            self._abandon_all.set()
        self._stopping.set()

    def run(self, on_registered: Callable[[], None] = lambda: None) -> None:
        """Register and work until stopped.

        Raises permanent errors of the first registration: NotAllowed, Untrusted, GroupNotFound, InvalidSettings.
        """
        try:
            self._register(self._snapshot().generation, patient=True)
            if self._snapshot().registration is None:
                return
            on_registered()
            # Heartbeats continue while workers drain, so that they don't count as lost.
            done = threading.Event()
            heart = threading.Thread(target=self._send_heartbeats, args=(done,), name="optimizer-heart", daemon=True)
            heart.start()
            self._threads.resize(self._threads.count)
            poller = threading.Thread(target=self._poll, name="optimizer-poll", daemon=True)
            poller.start()
            self._stopping.wait()
            self._client.stop_polling()
            self._threads.close()
            poller.join()
            workers = self._threads.end()
            log.info("optimizer.draining", running=len(self._snapshot().running))
            deadline = time.monotonic() + self._config.drain_timeout_s
            for worker in workers:
                worker.join(max(0.0, deadline - time.monotonic()))
            self._abandon_all.set()
            for worker in workers:
                worker.join()
            done.set()
            heart.join()
            self._leave()
        finally:
            self._client.close()

    def _register(self, generation: int, *, patient: bool) -> None:
        """Register unless done since that generation; if `patient`, wait for a coordinator that does not answer."""
        with self._registering:
            tries = 0
            while not self._snapshot().registration or self._snapshot().generation == generation:
                if self._stopping.is_set() and not self._snapshot().running:
                    return
                try:
                    self._register_once()
                    return
                except CoordinatorUnavailable as error:
                    if not patient:
                        raise
                    log.warning("coordinator.unreachable", error=error.message)
                    self._stopping.wait(RETRY_S[min(tries, len(RETRY_S) - 1)])
                    if self._abandon_all.is_set():
                        return
                    tries += 1

    def _register_once(self) -> None:
        running = tuple(self._snapshot().running)
        sent_s = steady_s()
        registration, adopted = self._client.register(
            self._config.enrolment_token,
            group=self._config.group,
            threads=self._threads.count,
            memory_bytes=self._config.memory_bytes * self._threads.count,
            labels=self._config.labels,
            heartbeat_interval_s=self._config.heartbeat_interval_s,
            running=running,
            previous_optimizer_id=self._previous_id,
            work_kinds=self._backend.kinds,
            max_cluster_bytes=self._backend.max_cluster_bytes,
        )
        with self._lock:
            self._session = sessions.registered(self._session, registration, adopted)
            self._timeout_s = registration.heartbeat_timeout_s
        self._note_answer(sent_s)
        self._previous_id = registration.optimizer_id
        self._log_if_remote(
            logging.INFO,
            "optimizer.registered",
            optimizer=registration.optimizer_id,
            group=self._config.group,
            threads=self._threads.count,
            adopted=len(adopted),
        )

    def _log_if_remote(self, level: int, event: str, **fields: object) -> None:
        """Log an event that the coordinator logs too, unless both use the same log."""
        if not self._config.is_beside:
            log.log(level, event, **fields)

    def _leave(self) -> None:
        registration = self._snapshot().registration
        if registration is None:
            return
        try:
            self._client.deregister(registration.token)
            log.info("optimizer.deregistered", optimizer=registration.optimizer_id)
        except AmoroError as error:
            log.warning("optimizer.left_silently", error=error.message)

    def _send_heartbeats(self, done: threading.Event) -> None:
        while not done.wait(self._interval()):
            count = self._threads.count
            if self._capacity is not None:
                self._threads.resize(max(1, self._capacity()))
            session = self._snapshot()
            if session.registration is None:
                self._renew(session.generation)
                continue
            if self._is_polling and self._threads.count == count and not session.running:
                continue  # the open poll is a heartbeat; attempts need an answer meanwhile, by which they may go on
            sent_s = steady_s()
            try:
                abandon, draining = self._client.heartbeat(
                    session.registration.token, session.running.values(), self._threads.count
                )
            except UnknownToken:
                self._renew(session.generation)
            except AmoroError as error:
                log.warning("heartbeat.failed", error=error.message)
            else:
                self._note_answer(sent_s)
                self._follow_answer(abandon, draining)

    def _note_answer(self, sent_s: float) -> None:
        """The coordinator has answered a call, sent at that time, by which it knows that this optimizer lives."""
        with self._lock:
            self._held_until_s = max(self._held_until_s, sent_s + self._timeout_s)

    def _follow_answer(self, abandon: Sequence[Attempt], draining: bool) -> None:
        with self._lock:
            self._session = sessions.heartbeat_answered(self._session, abandon)
        if draining:
            self._stopping.set()

    def _interval(self) -> float:
        registration = self._snapshot().registration
        return registration.heartbeat_interval_s if registration else RETRY_S[2]

    def _renew(self, generation: int) -> None:
        with self._lock:
            self._session = sessions.token_lost(self._session, generation)
        try:
            self._register(generation, patient=False)
        except AmoroError as error:
            log.warning("optimizer.registration_failed", error=error.message)

    def _poll(self) -> None:
        """Ask for work for all free threads at once, until stopped."""
        tries = 0
        while not self._stopping.is_set():
            free = self._threads.wait_for_free(RETRY_S[2])
            session = self._snapshot()
            if session.registration is None:
                self._stopping.wait(RETRY_S[1])
                self._renew(session.generation)
                continue
            if not free:
                continue
            try:
                polled = self._poll_once(session, session.registration, free)
                tries = 0
            except UnknownToken:
                self._renew(session.generation)
                continue
            except AmoroError as error:
                log.warning("poll.failed", error=error.message, threads=len(free))
                self._stopping.wait(RETRY_S[min(tries, len(RETRY_S) - 1)])
                tries += 1
                continue
            self._threads.give(polled)

    def _poll_once(self, session: Session, registration: Registration, free: Sequence[int]) -> Sequence[PolledTask]:
        """The tasks for these threads; the poll is a heartbeat while it is open."""
        # A busy optimizer learns what to abandon at least as often as by heartbeats.
        wait_s = min(POLL_WAIT_S, registration.heartbeat_interval_s) if session.running else POLL_WAIT_S
        running = [item for item in session.running.values() if not item.abandoned]
        self._is_polling, sent_s = True, steady_s()
        try:
            polled = self._client.poll(registration.token, free, wait_s, running, self._threads.count)
        finally:
            self._is_polling = False
        if not self._stopping.is_set():  # else the poll may have been ended here
            self._note_answer(sent_s)
        self._follow_answer(polled.abandon, polled.draining)
        return polled.tasks

    def _run(self, task: PolledTask) -> PolledTask | None:
        """Do a task; returns the thread's next one, if the coordinator has given it."""
        with self._lock:
            self._session = sessions.started(self._session, task.attempt, task.thread_id)
        try:
            failpoint("task.before_ack")
            if task.work.kind not in self._backend.kinds:
                self._refuse(task)
                return None
            acked_s = steady_s()  # before it is sent: the answer is valid from this time at the latest
            vended = self._ack(task)
            if vended is None:
                reason = "stale before it was acknowledged"
                self._log_if_remote(logging.WARNING, "task.dropped", attempt=str(task.attempt), reason=reason)
                return None
            result = self._attempt(task, vended, acked_s)
            if result is None:
                return None
            failpoint("task.before_complete")
            following = self._deliver(task, result)
            failpoint("task.after_complete")
            return following
        finally:
            with self._lock:
                self._session = sessions.finished(self._session, task.attempt)

    def _refuse(self, task: PolledTask) -> None:
        """Return work of an unknown kind, so that an optimizer that knows it gets it."""
        kind = task.work.kind
        error = UnknownWork(
            f"work of the kind {kind!r} is not known to this optimizer, which knows {', '.join(self._backend.kinds)}"
        )
        log.error("task.refused", attempt=str(task.attempt), kind=kind, known=list(self._backend.kinds))
        session = self._snapshot()
        if session.registration is None:
            return
        try:
            self._client.refuse(session.registration.token, task.attempt, kind, error)
        except AmoroError as failed:
            # The attempt is reset by its time-out or by this thread's next poll.
            log.warning("refusal.failed", attempt=str(task.attempt), error=failed.message)

    def _ack(self, task: PolledTask) -> Mapping[str, str] | None:
        """The vended properties; None when the attempt is not ours (any more)."""
        session = self._snapshot()
        if session.registration is None:
            return None
        try:
            return self._client.ack(session.registration.token, task.attempt)
        except AmoroError as error:
            # Whether or not the coordinator received the acknowledgement: the attempt is reset by its time-out
            # or by this thread's next poll.
            log.warning("ack.failed", attempt=str(task.attempt), error=error.message)
            return None

    def _attempt(self, task: PolledTask, vended: Mapping[str, str], acked_s: float) -> WorkResult | AmoroError | None:
        """The result to report; None when the attempt was abandoned."""
        started = time.monotonic()
        log.info("task.started", attempt=str(task.attempt), table=task.table, kind=task.work.kind)
        run = Run(
            task.attempt,
            vended,
            self._config.memory_bytes,
            lambda done, total: self._progress(task.attempt, done, total),
            lambda: self._is_cancelled(task.attempt),
            lambda name: self._fetch(task.attempt, name),
            lambda: steady_s() - acked_s,
            lambda stage, core_ms: self._report_stage(task.attempt, stage, core_ms),
            lambda: max(self._held_until_s, acked_s + self._timeout_s),
        )
        try:
            output = self._backend.execute(task.work, task.table, run)
        except AttemptAbandoned:
            log.info("task.abandoned", attempt=str(task.attempt))
            return None
        except AmoroError as error:
            log.warning("task.failed", attempt=str(task.attempt), code=error.code, error=error.message)
            return error
        except MemoryError:
            return OptimizerError("out of memory")
        except Exception as error:
            log.exception("task.failed", attempt=str(task.attempt))
            return OptimizerError(briefly(f"{type(error).__name__}: {error}", 1000))
        log.info("task.executed", attempt=str(task.attempt), seconds=round(time.monotonic() - started, 2))
        return output

    def _fetch(self, attempt: Attempt, name: BlobName) -> bytes:
        """Raises OptimizerError for a blob that is altered or unavailable; AttemptAbandoned."""
        for pause_s in RETRY_S:
            session = self._snapshot()
            if self._is_cancelled(attempt) or session.registration is None:
                break
            try:
                return self._client.fetch_blob(session.registration.token, attempt, name)
            except (CoordinatorUnavailable, UnknownToken) as error:
                log.warning("blob.unavailable", attempt=str(attempt), error=error.message)
                self._abandon_all.wait(pause_s)
        if self._is_cancelled(attempt):
            raise AttemptAbandoned(f"attempt {attempt} was cancelled")
        raise OptimizerError(f"the blob of attempt {attempt} can't be had: the coordinator does not answer")

    def _deliver(self, task: PolledTask, result: WorkResult | AmoroError) -> PolledTask | None:
        """Report until it is received, also across restarts of the coordinator. Returns the thread's next task."""
        attempt, tries = task.attempt, 0
        give_up: float | None = None
        while not sessions.abandons(self._snapshot(), attempt):
            session = self._snapshot()
            try:
                if session.registration is None:
                    raise UnknownToken("not registered")
                polls = not self._stopping.is_set() and task.thread_id <= self._threads.count
                token = session.registration.token
                reported = self._client.complete(token, attempt, result, task.thread_id if polls else 0)
            except UnknownToken:
                self._renew(session.generation)
            except CoordinatorUnavailable as error:
                log.warning("result.undelivered", attempt=str(attempt), error=error.message)
            except AmoroError as error:
                log.error("result.rejected", attempt=str(attempt), error=error.message)
                return None
            else:
                if not reported.accepted:
                    self._log_if_remote(logging.WARNING, "result.stale", attempt=str(attempt))
                return reported.following
            if self._stopping.is_set():
                give_up = give_up or time.monotonic() + DELIVERY_WINDOW_S
                if time.monotonic() > give_up or self._abandon_all.is_set():
                    log.error("result.lost", attempt=str(attempt))
                    return None
            self._abandon_all.wait(RETRY_S[min(tries, len(RETRY_S) - 1)])
            tries += 1
        return None

    def _progress(self, attempt: Attempt, rows_done: int, rows_total: int) -> None:
        with self._lock:
            self._session = sessions.progressed(self._session, attempt, rows_done, rows_total)

    def _report_stage(self, attempt: Attempt, stage: str, core_ms: int) -> None:
        with self._lock:
            self._session = sessions.staged(self._session, attempt, stage, core_ms)

    def _is_cancelled(self, attempt: Attempt) -> bool:
        return self._abandon_all.is_set() or sessions.abandons(self._snapshot(), attempt)

    def _snapshot(self) -> Session:
        with self._lock:
            return self._session
