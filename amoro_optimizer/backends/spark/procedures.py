"""Table services of Hudi and Paimon tables: the engine of the jar does and commits them, in the driver's JVM."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any
from urllib.parse import urlsplit
from zipfile import BadZipFile, ZipFile

from pyspark import SparkContext
from pyspark.sql import SparkSession

from amoro_core.errors import AmoroError, AttemptAbandoned, InvalidSettings, OptimizerError, TableRefused
from amoro_core.logger import get_logger
from amoro_core.model.table_services import LOCK_PROVIDER
from amoro_core.model.task_payload import PROCEDURE_GRACE, PROCEDURE_HUDI, PROCEDURE_PAIMON, TAKE_OVER, Work, WorkResult
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_optimizer.backends.spark.paimon_procedures import run_paimon
from amoro_optimizer.backends.spark.shuffle import reason_of
from amoro_optimizer.execution import Run, steady_s

log = get_logger("amoro.spark")

WATCH_S = 0.2
#: How often another driver's execution of the same plan is looked at.
LOOK_S = 1.0
#: A rollback of Hudi's own metadata table is held as long as the heartbeat of a lost driver that had begun it counts:
#: minutes. So long, and so often, it is tried.
ROLLBACK_WAIT_S, ROLLBACK_RETRY_S = 300.0, 5.0
_ROLLBACK_HELD = "HoodieMetadataException: Failed to rollback deltacommit at"
JVM = Any


@dataclass(frozen=True, slots=True)
class Jar:
    """The engine that a jar holds, as its manifest states it."""

    kind: str  # of the work that it can do
    version: str


#: Kind of work, name, title of the jars (a group is the series of Spark that they are for), and the least version.
_ENGINES = (
    # Since 1.2 two executions of one compaction exclude each other.
    (PROCEDURE_HUDI, "Hudi", re.compile(r"hudi-spark(\d+\.\d+)-bundle_.*"), (1, 2)),
    (PROCEDURE_PAIMON, "Paimon", re.compile(r"Paimon : (?:Bundle|Spark : (\d+\.\d+).*)"), (0, 9)),
)
_BELOW = (2, 0)  # both engines' versions, as the error says
#: Settings of Spark that Hudi cannot do without.
_FOR_HUDI = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
}


def engine_of(path: str, spark: str) -> Jar | None:
    """The engine in a jar; None: none of ours. `spark`: the version of Spark that is to run it.

    Raises InvalidSettings for a jar that can't be read, and for an engine of another version or for another Spark.
    """
    named = Path(urlsplit(path).path)
    try:
        with ZipFile(named if named.exists() else named.name) as jar:  # spark-submit may have brought it
            manifest = jar.read("META-INF/MANIFEST.MF").decode("utf-8", "replace")
    except (OSError, BadZipFile, KeyError) as error:
        raise InvalidSettings(f"the jar {path} can't be read: {error}", hint="Name a jar of this machine.") from error
    facts = dict(line.split(": ", 1) for line in manifest.splitlines() if ": " in line)
    title, version = facts.get("Implementation-Title", ""), facts.get("Implementation-Version", "")
    for kind, name, titles, least in _ENGINES:
        if (match := titles.fullmatch(title)) is None:
            continue
        numbers, series = tuple(map(int, re.findall(r"\d+", version)[:2])), ".".join(spark.split(".")[:2])
        if least <= numbers < _BELOW and match[1] in (None, series):
            return Jar(kind, version)
        raise InvalidSettings(
            f"the jar {path} has {name} {version}{f' for Spark {match[1]}' if match[1] else ''}: "
            f"{name} from {least[0]}.{least[1]} to below 2.0 is needed, for Spark {series}",
            hint="Give another jar, or install PySpark of the jar's series; without the jar the optimizer rewrites.",
        )
    return None


def settings_for(jars: Sequence[str], spark: str) -> tuple[dict[str, str], list[Jar]]:
    """The settings of Spark by which it has these jars, and their engines. Raises InvalidSettings."""
    engines = [engine for path in jars if (engine := engine_of(path, spark)) is not None]
    settings = dict(_FOR_HUDI) if any(engine.kind == PROCEDURE_HUDI for engine in engines) else {}
    if jars and "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has them
        settings["spark.jars"] = ",".join(jars)
    return settings, engines


class Procedures:
    """Executes table services, each in the thread that asks for it."""

    def __init__(self, context: SparkContext, engines: Sequence[Jar]) -> None:
        self._context = context
        self._versions = {engine.kind: engine.version for engine in engines}
        #: The kinds of work that the jars can do.
        self.kinds = tuple(self._versions)
        self._jvm_pid = int(_jvm(context).java.lang.ProcessHandle.current().pid())

    def execute(self, work: Work, run: Run) -> WorkResult:
        """Do the work. Raises AttemptAbandoned when it was stopped, TableRefused, OptimizerError."""
        procedure, began = pb.ProcedureWork.FromString(work.payload), time.monotonic()
        with self._watching(run) as is_stopped:
            try:
                if work.kind == PROCEDURE_HUDI:
                    output = _run_hudi(self._context, procedure, is_stopped)
                else:
                    output = run_paimon(self._context, procedure, is_stopped)
            except Exception as error:
                if is_stopped():
                    raise AttemptAbandoned(f"attempt {run.attempt} was cancelled") from error
                if isinstance(error, AmoroError):
                    raise
                causes = _causes(error)
                why = f"{reason_of(error)}{f' ({causes[-1]})' if len(causes) > 1 else ''}"
                raise OptimizerError(
                    f"{procedure.format} could not {procedure.service} {procedure.table}: {why}"
                ) from error
        output.engine_version = self._versions[work.kind]
        output.duration_ms = round((time.monotonic() - began) * 1000)
        return WorkResult(work.kind, output.SerializeToString(deterministic=True))

    @contextmanager
    def _watching(self, run: Run) -> Iterator[Callable[[], bool]]:
        """Whether the work was stopped: cancelled, or the coordinator may count this optimizer as lost.

        Then Spark's jobs are cancelled, and after a while the JVM is killed: it never goes on beside the next attempt.
        """
        over, tag = threading.Event(), f"amoro {run.attempt}".replace(",", " ")
        stopped: list[float] = []

        def watch() -> None:
            while not over.wait(WATCH_S):
                now = steady_s()
                if not stopped and (run.is_cancelled() or now > run.held_until_s()):
                    stopped.append(min(now, run.held_until_s()))
                if stopped and now > stopped[0] + PROCEDURE_GRACE.total_seconds():
                    log.error("procedure.killed", attempt=str(run.attempt), jvm=self._jvm_pid)
                    os.kill(self._jvm_pid, SIGKILL)
                    return
                if stopped:
                    try:  # the engine replaces the group of its jobs, and their tags stay
                        self._context.cancelJobsWithTag(tag)
                    except Exception as error:
                        log.warning("job.not_cancelled", attempt=str(run.attempt), error=reason_of(error))

        watcher = threading.Thread(target=watch, name="procedure-watcher", daemon=True)
        self._context.setJobGroup(str(run.attempt), f"procedure of attempt {run.attempt}")
        self._context.addJobTag(tag)
        watcher.start()
        try:
            yield lambda: bool(stopped)
        finally:
            over.set()
            with suppress(Exception):  # the JVM may be gone
                self._context.removeJobTag(tag)
            watcher.join()


def _jvm(context: SparkContext) -> JVM:
    return context._jvm


def _causes(error: Exception) -> list[str]:
    """An error in the JVM and its causes, the innermost last: engines wrap them often."""
    messages = []
    with suppress(Exception):  # the JVM may be gone
        thrown: JVM = getattr(error, "java_exception", None)
        while thrown is not None:
            messages.append(str(thrown.toString()).partition("\n")[0])
            thrown = thrown.getCause()
    return messages


#: With these, executions of one plan exclude each other, also those in other JVMs.
_EXCLUSIVE = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
#: Where nobody names a lock for the writers, ours exclude each other by a file; minutes until a killed one's is taken.
_OWN_LOCK = {
    LOCK_PROVIDER: "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.lock.filesystem.expire": "5",
}


def _run_hudi(context: SparkContext, procedure: pb.ProcedureWork, is_stopped: Callable[[], bool]) -> pb.ProcedureOutput:
    until_s = time.monotonic() + ROLLBACK_WAIT_S
    while True:
        try:
            return _Hudi(context, procedure, is_stopped).run()
        except Exception as error:
            is_held = any(_ROLLBACK_HELD in cause for cause in _causes(error))
            if not is_held or is_stopped() or time.monotonic() > until_s:
                raise
            log.warning("rollback.held", table=procedure.table, error=reason_of(error))
            time.sleep(ROLLBACK_RETRY_S)


class _Hudi:
    """A service of a Hudi table, by the write client that Hudi's own procedures use."""

    def __init__(self, context: SparkContext, procedure: pb.ProcedureWork, is_stopped: Callable[[], bool]) -> None:
        """Raises TableRefused where nothing excludes other executions."""
        self._hudi = _jvm(context).org.apache.hudi
        self._procedure, self._is_stopped = procedure, is_stopped
        options = dict(procedure.options)
        self._is_compaction, self._has_lock = procedure.service == "compact", LOCK_PROVIDER in options
        if not self._has_lock:
            scheme = urlsplit(procedure.location).scheme or "file"
            if scheme not in ("file", "hdfs"):
                raise self._refused(f"{scheme} creates no file atomically, and two executions could meet")
            options |= _OWN_LOCK
        session, scala = SparkSession(context)._jsparkSession, _jvm(context)
        self._client = self._hudi.HoodieCLIUtils.createHoodieWriteClient(
            session, procedure.location, scala.PythonUtils.toScalaMap(options | _EXCLUSIVE), scala.scala.Option.empty()
        )
        self._heartbeats = self._client.getHeartbeatClient()
        tables = self._hudi.common.table.HoodieTableMetaClient.builder()
        storage = self._client.getEngineContext().getStorageConf()
        self._table = tables.setConf(storage).setBasePath(procedure.location).build()

    def _refused(self, why: str) -> TableRefused:
        return TableRefused(
            f"{self._procedure.table} can't be serviced: {why}",
            reason="lock",
            hint=f"State {LOCK_PROVIDER} on the table or its catalog, the same as its writers have.",
        )

    def run(self) -> pb.ProcedureOutput:
        with closing(self._client):
            if self._procedure.service == "clean":
                return self._clean()
            instant = self._procedure.instant or next(iter(self._pending()), "") or self._schedule()
            return self._execute(instant) if instant else pb.ProcedureOutput(nothing_to_do=True)

    def _clean(self) -> pb.ProcedureOutput:
        if not self._has_lock:
            raise self._refused("a clean without a lock would take running writes for failed ones")
        cleaned = self._client.clean()
        if cleaned is None:
            return pb.ProcedureOutput(nothing_to_do=True)
        notes = [f"{cleaned.getTotalFilesDeleted()} files were deleted"]
        return pb.ProcedureOutput(instant=cleaned.getStartCleanTime(), notes=notes)

    def _pending(self) -> dict[str, bool]:
        """The instants of the service's plans that are not completed, oldest first, and whether each has begun."""
        timeline = self._table.reloadActiveTimeline()
        if self._is_compaction:
            instants = timeline.filterPendingCompactionTimeline().getInstants()
        else:
            instants = self._hudi.common.util.ClusteringUtils.getPendingClusteringInstantTimes(self._table)
        return dict(sorted((str(instant.requestedTime()), bool(instant.isInflight())) for instant in instants))

    def _schedule(self) -> str:
        """The instant of a new plan; "" where Hudi sees nothing to do."""
        if not self._has_lock:
            raise self._refused("no plan is pending, and without a lock none is made beside its writers")
        extra = self._hudi.common.util.Option.of({"amoro.process": self._procedure.marker})
        instant = (self._client.scheduleCompaction if self._is_compaction else self._client.scheduleClustering)(extra)
        return str(instant.get()) if instant.isPresent() else ""

    def _execute(self, instant: str) -> pb.ProcedureOutput:
        # It tells that a driver of ours has begun the plan, also after its heartbeat has ended with it.
        mark = self._hudi.storage.StoragePath(f"{self._procedure.location}/.hoodie/.aux/amoro-{instant}")
        output = pb.ProcedureOutput(instant=instant, nothing_to_do=True)
        while (has_begun := self._pending().get(instant)) is not None:
            if self._is_stopped():
                raise AttemptAbandoned(f"the plan {instant} was not begun")
            if not self._claim(instant, mark, has_begun):
                time.sleep(LOOK_S)
                continue
            try:
                (self._client.compact if self._is_compaction else self._client.cluster)(instant, True)
                output.nothing_to_do = False
            except Exception:
                is_ours = not self._is_compaction or self._heartbeats.isHeartbeatExpired(instant)
                if is_ours and instant in self._pending():  # else another one was faster by a moment
                    raise
            finally:
                if not self._is_compaction:
                    self._heartbeats.stop(instant)
        self._table.getStorage().deleteFile(mark)
        if output.nothing_to_do:
            output.notes.append(f"{instant} is not pending any more")
        return output

    def _claim(self, instant: str, mark: JVM, has_begun: bool) -> bool:
        """Whether no other driver executes the plan, as its heartbeat tells; then ours keeps one.

        Hudi keeps that of compactions itself. The heartbeat of a driver that was lost ends after a while. Raises
        OptimizerError for a plan that a writer has begun: it may be at it without a heartbeat.
        """
        storage, lock = self._table.getStorage(), self._client.getTransactionManager().getLockManager()
        if has_begun and self._procedure.options.get(TAKE_OVER) != "true" and not storage.exists(mark):
            raise OptimizerError(
                f"the plan {instant} of {self._procedure.table} was begun by a writer",
                hint="Let the writer complete it, and only schedule from then on: hoodie.compact.inline=false.",
            )
        lock.lock()
        try:
            if not self._heartbeats.isHeartbeatExpired(instant):
                return False
            storage.create(mark, True).close()
            if not self._is_compaction:
                self._heartbeats.start(instant)
            return True
        finally:
            lock.unlock()
