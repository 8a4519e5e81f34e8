"""What Iceberg's Java runtime plans to read, fetched at once: a call for each file costs more than the planning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_ICEBERG = "org.apache.iceberg"
_GUAVA = f"{_ICEBERG}.relocated.com.google.common"


@dataclass(frozen=True, slots=True)
class JavaPlans:
    """Functions over scan tasks, made in the JVM of method handles, since py4j can't send code."""

    gateway: Any
    path: Any  # of a task: the location of its data file
    deletes: Any  # of a task: the locations of its delete files

    def deletes_by_file(self, table: Any) -> dict[str, frozenset[str]]:
        """For each data file of the head of a Java table the deletes with which Java would read it, by location.

        Locations have no line breaks, commas or brackets in these tests.
        """
        guava = self.gateway.jvm.org.apache.iceberg.relocated.com.google.common
        planned = table.newScan().planFiles()
        tasks = guava.collect.Lists.newArrayList(planned)
        planned.close()
        join = guava.base.Joiner.on("\n").join
        paths, deletes = (str(join(guava.collect.Lists.transform(tasks, of))) for of in (self.path, self.deletes))
        lists = (line.strip("[]").split(", ") for line in deletes.split("\n"))
        return {
            path: frozenset(filter(None, here)) for path, here in zip(paths.split("\n"), lists, strict=True) if path
        }


def java_plans(gateway: Any) -> JavaPlans:
    """Make the functions in the gateway's JVM."""
    invoke = gateway.jvm.java.lang.invoke
    lookup, handles, signature = invoke.MethodHandles.publicLookup(), invoke.MethodHandles, invoke.MethodType.methodType
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def named(name: str) -> Any:
        return gateway.jvm.java.lang.Class.forName(name, True, loader)

    def getter(owner: str, name: str, kind: str) -> Any:
        return lookup.findVirtual(named(f"{_ICEBERG}.{owner}"), name, signature(named(kind)))

    def as_function(handle: Any) -> Any:
        return invoke.MethodHandleProxies.asInterfaceInstance(function, handle)

    function = named(f"{_GUAVA}.base.Function")
    location = getter("ContentFile", "location", "java.lang.String")
    given = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    given[0] = as_function(location)
    listing = signature(named("java.util.List"), gateway.jvm.java.util.List.of(named("java.util.List"), function))
    transform = lookup.findStatic(named(f"{_GUAVA}.collect.Lists"), "transform", listing)
    locations = handles.insertArguments(transform, 1, given)
    return JavaPlans(
        gateway,
        as_function(handles.filterReturnValue(getter("ContentScanTask", "file", f"{_ICEBERG}.ContentFile"), location)),
        as_function(handles.filterReturnValue(getter("FileScanTask", "deletes", "java.util.List"), locations)),
    )
