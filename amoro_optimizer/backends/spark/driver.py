"""The Spark backend: one job for each attempt, in a pool of its table."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pyspark
from pyspark import SparkContext

from amoro_core.errors import AmoroError, AttemptAbandoned, OptimizerError, TableRefused, error_classes
from amoro_core.logger import get_logger
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.processes import Attempt
from amoro_core.model.task_payload import Work, WorkResult
from amoro_core.protocol import codec
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.protocol.codec import decode_cluster_input, encode_cluster_output
from amoro_optimizer.backends.spark.clustering import Application, cluster
from amoro_optimizer.backends.spark.driver_channel import Channel, Job, Progress
from amoro_optimizer.backends.spark.procedures import Jar, Procedures, settings_for
from amoro_optimizer.backends.spark.shuffle import max_cluster_bytes, open_context, reason_of
from amoro_optimizer.backends.spark.worker import Assignment, run_partition
from amoro_optimizer.cluster.engine import rows_through
from amoro_optimizer.work_kinds import Fetching, Run, installed_kinds


class Pools:
    """Assigns pools to tables. Spark keeps a pool for ever, so free ones are reused before another is made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[int, int]] = {}  # by table: the pool's number, and how many jobs there are

    @contextmanager
    def pool_of(self, table: str) -> Iterator[str]:
        """The pool for a job of the table, exclusive until the table's last job is over."""
        with self._lock:
            used = {number for number, _ in self._held.values()}
            free = next(number for number in itertools.count(1) if number not in used)
            number, jobs = self._held.get(table, (free, 0))
            self._held[table] = number, jobs + 1
        try:
            yield f"amoro-{number}"
        finally:
            with self._lock:
                number, jobs = self._held.pop(table)
                if jobs > 1:
                    self._held[table] = number, jobs - 1


log = get_logger("amoro.spark")

WATCH_S = 0.2
#: Interval of checks whether the application is alive.
ALIVE_EVERY_S = 2.0
#: Grace period of a worker that was asked to stop, before Spark kills it.
GRACE_S = 3.0
#: How long a killed worker's connection is waited for before its files are removed; Spark kills within 2 to 4 s.
SETTLE_S = 8.0


@dataclass(slots=True)
class _Watched:
    """A running job, as seen by the watcher."""

    group: str
    job: Job
    is_cancelled: Callable[[], bool]
    told_at: float | None = None  # when its workers were told to stop


class SparkBackend:
    """Executes attempts in a Spark application, from as many threads as the runner has."""

    def __init__(self, context: SparkContext, engines: Sequence[Jar] = ()) -> None:
        """`engines`: those whose jars the application has."""
        conf = context.getConf()
        self._kinds = installed_kinds()
        #: The application's id, as Spark's own pages show it.
        self.application = str(context.applicationId)
        self.master = str(context.master)
        self._context = context
        self._host = str(conf.get("spark.driver.host"))
        self._channel = Channel(
            str(conf.get("spark.driver.bindAddress") or self._host), int(conf.get("spark.amoro.port") or 0)
        )
        self._procedures = Procedures(context, engines)
        #: The kinds of work that the driver knows; its workers have the same packages.
        self.kinds: Sequence[str] = (*self._kinds.names, *self._procedures.kinds)
        #: The largest group of files, in bytes, that the application clusters: by its setting, else by its disk.
        self.max_cluster_bytes = max_cluster_bytes(conf)
        self._pools = Pools()
        self._lock = threading.Lock()
        self._watched: dict[Attempt, _Watched] = {}
        #: How many tasks the application's executors can run at a time, as of the last check; 0 without executors.
        self.slots = slots_of(context)
        #: Why the application has ended by itself; empty while it is alive. It can't be restarted in this process.
        self.loss = ""
        #: Called when the application has ended by itself.
        self.on_loss: Callable[[], None] = lambda: None
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="spark-watcher", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """End the application."""
        self._closing.set()
        self._watcher.join()
        self._channel.close()
        try:
            self._context.stop()
        except Exception as error:
            log.warning("spark.left_silently", error=reason_of(error))

    def execute(self, work: Work, table: str, run: Run) -> WorkResult:
        """Do the work in a worker. Files that executions have begun, and that are not in the result, are removed.

        Raises UnknownWork, what the kind raises, AttemptAbandoned when cancelled or when the application has ended,
        OptimizerError when Spark failed.
        """
        if run.is_cancelled():
            raise AttemptAbandoned(f"attempt {run.attempt} was cancelled before it began")
        if work.kind in self._procedures.kinds:
            try:
                return self._procedures.execute(work, run)
            except Exception as error:
                self._check_alive()
                if self.loss:
                    raise AttemptAbandoned(f"attempt {run.attempt} was lost with its application") from error
                raise
        kind = self._kinds.of(work.kind)
        blob = run.fetch(kind.blob(work.payload)) if isinstance(kind, Fetching) else b""
        needed: frozenset[str] = frozenset()
        with self._channel.job(progress_of(work, run), run.age_s) as (name, job):
            assignment = Assignment(
                attempt=codec.encode_attempt(run.attempt).SerializeToString(),
                kind=work.kind,
                work=work.payload,
                io_properties=dict(run.io_properties),
                memory_bytes=run.memory_bytes,
                driver=(self._host, self._channel.port),
                key=self._channel.key,
                job=name,
                blob=blob,
            )
            try:
                with self._watching(run.attempt, job, run.is_cancelled), self._pools.pool_of(table) as pool:
                    result = self._run(table, run.attempt, assignment, job, pool)
                needed = kind.files(result.payload)
            except AttemptAbandoned as error:
                if run.is_cancelled() or self.loss:
                    raise
                raise OptimizerError(f"Spark ran the task again meanwhile: {error.message}") from error
            finally:
                self._remove(work, run.io_properties, [path for path in job.settle(SETTLE_S) if path not in needed])
        return result

    def _run(self, table: str, attempt: Attempt, assignment: Assignment, job: Job, pool: str) -> WorkResult:
        context, task = self._context, attempt.task_id
        description = f"{table} · process {task.process_id} · task {task.number} · attempt {attempt.number}"

        def begin_stage(stage: str) -> None:
            context.setLocalProperty("callSite.short", f"{stage} {table}")

        try:
            context.setJobGroup(str(attempt), description, interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", pool)
            if assignment.kind == CLUSTER:
                output = cluster(Application(context, self.slots, begin_stage), assignment, job)
                return WorkResult(CLUSTER, encode_cluster_output(output))
            begin_stage(assignment.kind)
            (answer,) = context.runJob(context.parallelize([assignment], 1), run_partition)
        except Exception as error:
            self._check_alive()
            if job.failure is not None:
                raise failure_of(*job.failure) from error
            if self.loss or job.is_over:
                raise AttemptAbandoned(f"attempt {attempt} was cancelled") from error
            raise error if isinstance(error, AmoroError) else not_run(error) from error
        message = pb.TaskResult.FromString(answer)
        result = codec.result_of(message)
        if result is None:
            raise failure_of(message.failure.code, message.failure.message)
        return result

    def _remove(self, work: Work, io_properties: Mapping[str, str], paths: list[str]) -> None:
        """Remove what a killed or superseded execution may have left; most of it is gone already."""
        for path in paths:
            try:
                self._kinds.of(work.kind).open(work.payload, io_properties).delete(path)
            except AmoroError as error:
                log.warning("file.left_over", path=path, error=error.message)

    # The watcher

    @contextmanager
    def _watching(self, attempt: Attempt, job: Job, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        with self._lock:
            self._watched[attempt] = _Watched(str(attempt), job, is_cancelled)
        try:
            yield
        finally:
            with self._lock:
                del self._watched[attempt]

    def _watch(self) -> None:
        looked_at = time.monotonic()
        while not self._closing.wait(WATCH_S):
            now = time.monotonic()
            if now - looked_at >= ALIVE_EVERY_S:
                looked_at = now
                self._check_alive()
            with self._lock:
                watched = list(self._watched.values())
            for item in watched:
                if item.is_cancelled() or item.job.failure is not None:
                    self._cancel(item, now)

    def _cancel(self, item: _Watched, now: float) -> None:
        """Tell the worker; make Spark end the job if there is no worker or it does not respond.

        Spark forgets a cancellation of a job that it does not know yet, so it is repeated with each check.
        """
        if item.told_at is None:
            item.told_at = now
            item.job.stop()
        if not item.job.is_running or now - item.told_at >= GRACE_S:
            try:
                self._context.cancelJobGroup(item.group)
            except Exception as error:
                log.warning("job.not_cancelled", attempt=item.group, error=reason_of(error))

    def _check_alive(self) -> None:
        """Update the number of slots, or note that the application has ended."""
        if self.loss:
            return
        try:
            ended = bool(self._context._jsc.sc().isStopped())
            if not ended:
                self.slots = slots_of(self._context)
        except Exception as error:
            self._end(reason_of(error))
        else:
            if ended:
                self._end("its master or a person stopped it")

    def _end(self, reason: str) -> None:
        if self.loss or self._closing.is_set():
            return
        self.loss = reason
        log.error("spark.lost", application=self.application, reason=reason)
        self.on_loss()


def progress_of(work: Work, run: Run) -> Progress:
    """What turns the progress of a job's parts into that of the attempt."""
    if work.kind != CLUSTER:
        return lambda part, done, total, core_ms: run.on_progress(done, total)
    rows_in_all = sum(file.data.record_count for file in decode_cluster_input(work.payload).rewrite.rewritten)
    done_by_part: dict[str, int] = {}
    lock = threading.Lock()  # each part has a thread of its own

    def tell(part: str, done: int, total: int, core_ms: int) -> None:
        done_by_stage: Counter[str] = Counter()
        with lock:
            done_by_part[part] = max(done, done_by_part.get(part, 0))
            for name, rows in done_by_part.items():
                done_by_stage[name.split()[0]] += rows
        run.on_stage(part.split()[0], core_ms)
        run.on_progress(rows_through(done_by_stage, rows_in_all), rows_in_all)

    return tell


def spark_backend(master: str | None, settings: Mapping[str, str], jars: Sequence[str] = ()) -> closing[SparkBackend]:
    """A backend with an application of its own that has these jars, during the block. Raises InvalidSettings."""
    with_jars, engines = settings_for(jars, pyspark.__version__)
    if {"spark.jars"} <= with_jars.keys() & settings.keys():
        with_jars["spark.jars"] += f",{settings['spark.jars']}"
    return closing(SparkBackend(open_context(master, {**settings, **with_jars}), engines))


def slots_of(context: SparkContext) -> int:
    """How many tasks the present executors run at a time; default parallelism may be set, and is at least 2."""
    jvm = context._jsc.sc()
    return int(jvm.maxNumConcurrentTasks(jvm.resourceProfileManager().defaultResourceProfile()))


def not_run(error: Exception) -> OptimizerError:
    """The error for a task that Spark could not run."""
    reason = reason_of(error)
    lacks_amoro = "No module named 'amoro" in reason
    hint = "executors need amoro: see `amoro optimizer package`" if lacks_amoro else "the executor's log says more"
    return OptimizerError(f"Spark could not run the task: {reason}", hint=hint)


def failure_of(code: str, message: str) -> AmoroError:
    """The error that a worker reported, by its code."""
    kind = error_classes().get(code, OptimizerError)
    return TableRefused(message, reason="") if issubclass(kind, TableRefused) else kind(message)
