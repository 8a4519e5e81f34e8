"""Compaction and expiry of Paimon tables by Paimon's own Java classes, in the JVM of a Spark driver.

The classes that implement Paimon's interfaces are not public, so that py4j does not find their methods: these are
invoked by reflection on the interfaces.
"""

import base64
import json
import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from pyspark import SparkContext

from amoro_core.errors import AttemptAbandoned, TableRefused
from amoro_core.protocol import maintenance_pb2 as pb

_TABLE = "org.apache.paimon.table.FileStoreTable"
#: Paimon adds it to the fields of every manifest.
_VERSION = "_VERSION"


def run_paimon(
    context: SparkContext, work: pb.ProcedureWork, is_stopped: Callable[[], bool] = lambda: False
) -> pb.ProcedureOutput:
    """Do the service; Paimon commits it as a user whose name begins with the work's marker.

    Raises TableRefused("service") when the jar does not know a field that has values in the table's manifests: it would
    write manifests without them. AttemptAbandoned: nothing was committed. And what py4j raises.
    """
    jvm: Any = context._jvm
    if unknown := sorted(set(work.manifest_fields) - fields_of_manifests(jvm)):
        raise TableRefused(
            f"{work.table} was written by a newer Paimon than the jar's: its manifests have {', '.join(unknown)}",
            reason="service",
            hint="Start the optimizer with a jar of the writer's version, or of a later one.",
        )
    options = jvm.org.apache.paimon.options.Options()
    options.set("path", work.location)
    catalog = jvm.org.apache.paimon.catalog.CatalogContext.create(options, context._jsc.hadoopConfiguration())
    table = jvm.org.apache.paimon.table.FileStoreTableFactory.create(catalog)
    changes = jvm.java.util.HashMap()
    changes.put("write-only", "false")
    writing = _call(jvm, table, "org.apache.paimon.table.Table", "copy", changes)
    committer = f"{work.marker}_{uuid.uuid4()}"
    if work.service != "expire":
        return _compact(jvm, table, writing, committer, work, is_stopped)
    with closing(_call(jvm, writing, _TABLE, "newCommit", committer)) as commit:
        commit.expireSnapshots()
    return pb.ProcedureOutput()


def fields_of_manifests(jvm: Any) -> set[str]:
    """The fields of manifests that the jar reads and writes."""
    paimon = jvm.org.apache.paimon
    manifests = paimon.manifest.ManifestEntry, paimon.manifest.ManifestFileMeta, paimon.manifest.IndexManifestEntry
    kinds = (*manifests, paimon.io.DataFileMeta)
    return {_VERSION, *(str(field.name()) for kind in kinds for field in kind.SCHEMA.getFields())}


def _compact(
    jvm: Any, table: Any, writing: Any, committer: str, work: pb.ProcedureWork, is_stopped: Callable[[], bool]
) -> pb.ProcedureOutput:
    """`writing` is the table for writers that compact; the table itself commits, so that nothing expires with it."""
    row_of = jvm.org.apache.paimon.utils.SerializationUtils.deserializeBinaryRow
    buckets = [(row_of(base64.b64decode(row)), *rest) for row, *rest in json.loads(work.options["buckets"])]
    with ExitStack() as stack:
        if work.options["mode"] == "unaware":
            store = _call(jvm, writing, _TABLE, "store")
            write = stack.enter_context(
                closing(_call(jvm, store, "org.apache.paimon.FileStore", "newWrite", committer))
            )
            messages = jvm.java.util.ArrayList()
            for task in _append_tasks(jvm, writing):
                if any(task.partition().equals(partition) for partition, *_ in buckets) and not is_stopped():
                    messages.add(task.doCompact(writing, write))
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="amoro-paimon-"))
            disk = stack.enter_context(closing(jvm.org.apache.paimon.disk.IOManager.create(folder)))
            write = stack.enter_context(closing(_call(jvm, writing, _TABLE, "newWrite", committer)))
            write.withIOManager(disk)
            for partition, bucket, is_full in buckets:
                write.compact(partition, bucket, is_full)
            messages = write.prepareCommit()
        commit = stack.enter_context(closing(_call(jvm, table, _TABLE, "newCommit", committer)))
        if is_stopped():
            commit.abort(messages)
            raise AttemptAbandoned(f"the compaction of {work.table} was stopped before its commit")
        commit.ignoreEmptyCommit(True)
        commit.commit(messages)
        return pb.ProcedureOutput(nothing_to_do=all(message.isEmpty() for message in messages))


def _append_tasks(jvm: Any, table: Any) -> Sequence[Any]:
    """What Paimon would merge in a table without buckets."""
    append = jvm.org.apache.paimon.append
    try:
        coordinator = append.AppendCompactCoordinator(table, False)
    except TypeError:  # as Paimon 0.9 names it
        coordinator = append.UnawareAppendTableCompactionCoordinator(table, False)
    try:
        tasks: Sequence[Any] = coordinator.run()
    except Exception as error:
        if "EndOfScanException" not in str(error):
            raise
        return ()
    return tasks


def _call(jvm: Any, target: Any, interface: str, name: str, *args: Any) -> Any:
    """Invoke the interface's method of that name and number of arguments."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    methods = jvm.java.lang.Class.forName(interface, True, loader).getMethods()
    method = next(item for item in methods if (item.getName(), item.getParameterCount()) == (name, len(args)))
    given = jvm.java.util.ArrayList()
    for arg in args:
        given.add(arg)
    return method.invoke(target, given.toArray())
