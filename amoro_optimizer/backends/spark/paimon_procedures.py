"""Compaction and expiry of Paimon tables by Paimon's own Java classes in the JVM of a Spark driver.

The classes that implement Paimon's interfaces are not public, so py4j does not find their methods: these are invoked by
reflection on the interfaces. Tried with `paimon-bundle` 1.4.2 on PySpark 4.0.
"""

import base64
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from amoro_core.errors import AttemptAbandoned, TableRefused, WorkFailed
from amoro_core.model.text_sanitizing import briefly
from amoro_core.protocol import maintenance_pb2 as pb

_TABLE = "org.apache.paimon.table.FileStoreTable"
#: Row types that Paimon writes manifests, lists of manifests and manifests of indexes by.
_MANIFESTS = ("ManifestEntry", "ManifestFileMeta", "IndexManifestEntry")
#: Paimon adds it to each of them.
_VERSION_FIELD = "_VERSION"


def run_paimon(
    spark: Any, work: pb.ProcedureWork, is_cancelled: Callable[[], bool] = lambda: False
) -> pb.ProcedureOutput:
    """Do the service; Paimon commits it as a user whose name begins with the work's marker.

    Raises WorkFailed when the jar is missing or Paimon fails, TableRefused("service") when the jar does not know
    a field of the table's manifests: it would write manifests that the table's writer can no longer read.
    """
    began = time.monotonic()
    jvm = spark.sparkContext._jvm
    try:
        if unknown := sorted(set(work.manifest_fields) - known_fields(jvm)):
            raise TableRefused(
                f"the manifests of {work.table} have fields that this optimizer's Paimon does not know: "
                f"{', '.join(unknown)}",
                reason="service",
                hint="Start the optimizer with a Paimon jar at least as new as the table's writer.",
            )
        table = _open(spark, jvm, work.location)
        committer = f"{work.marker}_{uuid.uuid4()}"
        if work.service == "expire":
            _expire(jvm, table, committer)
            changed = True
        else:
            changed = _compact(jvm, table, committer, work, is_cancelled)
    except Py4JJavaError as error:
        raise WorkFailed(f"Paimon failed on {work.table}: {_root_cause(error.java_exception)}") from error
    except (Py4JError, TypeError) as error:  # a class or method that the jar lacks; a missing class is a package
        raise WorkFailed(
            f"the classes of Paimon that {work.service} of {work.table} needs can't be used: {briefly(str(error))}",
            hint="Start the optimizer with paimon-bundle 1.4.2: amoro optimizer run --backend spark --jars FILE.",
        ) from error
    return pb.ProcedureOutput(nothing_to_do=not changed, duration_ms=round((time.monotonic() - began) * 1000))


def known_fields(jvm: Any) -> set[str]:
    """The fields of manifests that the jar reads and writes. Raises py4j's errors without such a jar."""
    manifest = jvm.org.apache.paimon.manifest
    return {_VERSION_FIELD, *(name for kind in _MANIFESTS for name in _names(getattr(manifest, kind).SCHEMA))}


def _names(kind: Any) -> Iterator[str]:
    """The names of all fields in a type of Paimon."""
    match kind.getTypeRoot().name():
        case "ROW":
            for field in kind.getFields():
                yield str(field.name())
                yield from _names(field.type())
        case "ARRAY":
            yield from _names(kind.getElementType())


def _open(spark: Any, jvm: Any, location: str) -> Any:
    options = jvm.org.apache.paimon.options.Options()
    options.set("path", location)
    context = jvm.org.apache.paimon.catalog.CatalogContext.create(options, spark._jsc.hadoopConfiguration())
    return jvm.org.apache.paimon.table.FileStoreTableFactory.create(context)


def _writing(jvm: Any, table: Any) -> Any:
    """The table, but compacting and expiring although its other writers don't."""
    options = jvm.java.util.HashMap()
    options.put("write-only", "false")
    return _call(jvm, table, "org.apache.paimon.table.Table", "copy", options)


def _expire(jvm: Any, table: Any, committer: str) -> None:
    with closing(_call(jvm, _writing(jvm, table), _TABLE, "newCommit", committer)) as commit:
        commit.expireSnapshots()


def _compact(jvm: Any, table: Any, committer: str, work: pb.ProcedureWork, is_cancelled: Callable[[], bool]) -> bool:
    """Whether anything was committed. The write-only table commits, so that nothing expires with it."""
    writing, row_of = _writing(jvm, table), jvm.org.apache.paimon.utils.SerializationUtils.deserializeBinaryRow
    buckets = [(row_of(base64.b64decode(row)), *rest) for row, *rest in json.loads(work.options["buckets"])]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="amoro-paimon-"))
        if work.options["mode"] == "unaware":
            write = _call(
                jvm, _call(jvm, writing, _TABLE, "store"), "org.apache.paimon.FileStore", "newWrite", committer
            )
            stack.enter_context(closing(write))
            messages = jvm.java.util.ArrayList()
            for task in _append_tasks(jvm, writing):
                if any(task.partition().equals(partition) for partition, *_ in buckets):
                    messages.add(task.doCompact(writing, write))
        else:
            write = stack.enter_context(closing(_call(jvm, writing, _TABLE, "newWrite", committer)))
            write.withIOManager(stack.enter_context(closing(jvm.org.apache.paimon.disk.IOManager.create(folder))))
            for partition, bucket, is_full in buckets:
                write.compact(partition, bucket, is_full)
            messages = write.prepareCommit()
        commit = stack.enter_context(closing(_call(jvm, table, _TABLE, "newCommit", committer)))
        if is_cancelled():
            commit.abort(messages)
            raise AttemptAbandoned(f"the compaction of {work.table} was cancelled")
        commit.ignoreEmptyCommit(True)
        commit.commit(messages)
        return any(not message.isEmpty() for message in messages)


def _append_tasks(jvm: Any, table: Any) -> Sequence[Any]:
    """What Paimon would compact of a table without buckets."""
    try:
        tasks: Sequence[Any] = jvm.org.apache.paimon.append.AppendCompactCoordinator(table, False).run()
    except Py4JJavaError as error:
        if "EndOfScanException" in error.java_exception.getClass().getName():
            return ()
        raise
    return tasks


def _call(jvm: Any, target: Any, interface: str, name: str, *args: Any) -> Any:
    """Invoke the interface's method of that name and number of arguments."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    methods = loader.loadClass(interface).getMethods()
    method = next(one for one in methods if one.getName() == name and one.getParameterCount() == len(args))
    given = jvm.java.util.ArrayList()
    for one in args:
        given.add(one)
    return method.invoke(target, given.toArray())


def _root_cause(error: Any) -> str:
    while error.getCause() is not None:
        error = error.getCause()
    return briefly(str(error.toString()))
