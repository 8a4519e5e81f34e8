"""Plug-ins of installed packages, by entry point."""

from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import MappingProxyType
from typing import Any

from amoro_core.actions.action_api import Action
from amoro_core.actions.registry import GROUP as ACTION_GROUP
from amoro_core.actions.registry import Actions
from amoro_core.containers.base import Container, ContainerFactory, ExternalContainer
from amoro_core.containers.local import LocalContainer
from amoro_core.containers.spark import SparkContainer
from amoro_core.errors import InvalidArgument
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.ports import TableFormat
from amoro_core.iceberg.manifest.manifest_cache import TableManifestCache
from amoro_core.logger import get_logger
from amoro_core.model.entry_points import extensions
from amoro_core.model.group_config import EXTERNAL
from amoro_core.model.listeners import Listener
from amoro_core.scheduling.policy import POLICIES, Policy
from amoro_core.services.listeners import Receive

#: An entry point of this group names a scheduling policy: a function as `amoro_core.scheduling.policy.Policy` says.
POLICY_GROUP = "amoro.scheduling_policies"
#: One of this group names a container: a function as `amoro_core.containers.base.ContainerFactory` says.
CONTAINER_GROUP = "amoro.containers"
#: One of this group names a table format: a function without arguments that makes one.
FORMAT_GROUP = "amoro.table_formats"
#: One of this group names a function that takes events; its attributes `kinds` and `on`, if any, limit them.
LISTENER_GROUP = "amoro.event_listeners"

#: The built-in containers.
CONTAINERS: Mapping[str, ContainerFactory] = MappingProxyType(
    {EXTERNAL: ExternalContainer, "local": LocalContainer, "spark": SparkContainer}
)

log = get_logger("amoro.plugins")


def scheduling_policies() -> Mapping[str, Policy]:
    """All policies by name: our own, which can't be replaced, and those of installed packages.

    One that can't be loaded is logged and left out.
    """
    plugged: Mapping[str, Policy] = _plugged_in(POLICY_GROUP)
    return {**POLICIES, **{name: policy for name, policy in plugged.items() if name not in POLICIES}}


def containers(home: Path) -> Mapping[str, Container]:
    """All containers by name, for the coordinator of that state directory; as for policies, ours can't be replaced.

    One that can't be loaded or made is logged and left out.
    """
    containers: dict[str, Container] = {name: make(home) for name, make in CONTAINERS.items()}
    for name, make in _plugged_in(CONTAINER_GROUP).items():
        try:
            containers.setdefault(name, make(home))
        except Exception as error:
            log.exception("plugin.failed", group=CONTAINER_GROUP, name=name, why=str(error))
    return containers


def table_formats(tables: TableManifestCache | None = None) -> tuple[TableFormat, ...]:
    """All table formats: Iceberg, which can't be replaced, with what it knows, and those of installed packages.

    One that can't be loaded or made, or has the name of another one, is logged and left out.
    """
    formats: dict[str, TableFormat] = {IcebergFormat.name: IcebergFormat(tables)}
    for table_format in _created(FORMAT_GROUP, lambda format: _require_new(format.name, formats)):
        formats[table_format.name] = table_format
    return tuple(formats.values())


def more_actions() -> tuple[Action, ...]:
    """The actions of installed packages.

    One that can't be loaded or made, or has a process's name of another one, is logged and left out.
    """
    actions: list[Action] = []
    for action in _created(ACTION_GROUP, lambda action: Actions((*actions, action))):
        actions.append(action)
    return tuple(actions)


def event_listeners(names: Collection[str]) -> Mapping[Listener, Receive]:
    """The listeners of installed packages; one that has a listener's name of the settings, or a wrong limit, is logged
    and left out."""
    listeners: dict[Listener, Receive] = {}
    for name, receive in _plugged_in(LISTENER_GROUP).items():
        given = {key: getattr(receive, key) for key in ("kinds", "on") if hasattr(receive, key)}
        try:
            _require_new(name, names)
            listeners[Listener(name=name, **given)] = receive
        except (ValueError, InvalidArgument) as error:
            log.exception("plugin.failed", group=LISTENER_GROUP, name=name, why=str(error))
    return listeners


def _require_new(name: str, names: Collection[str]) -> None:
    if name in names:
        raise ValueError(f"there is one of the name {name!r} already")


def _created(group: str, check: Callable[[Any], object]) -> Iterator[Any]:
    """Objects that the functions of a group return and that pass the check, which may raise."""
    for name, make in _plugged_in(group).items():
        try:
            check(plugin := make())
        except Exception as error:
            log.exception("plugin.failed", group=group, name=name, why=str(error))
        else:
            yield plugin


def _plugged_in(group: str) -> dict[str, Callable[..., Any]]:
    loaded = ((point.name, _loaded(group, point)) for point in extensions(group))
    return {name: plugin for name, plugin in loaded if plugin is not None}


def _loaded(group: str, point: EntryPoint) -> Callable[..., Any] | None:
    try:
        plugin = point.load()
        if not callable(plugin):
            raise TypeError(f"{point.value} is not a function")
    except Exception as error:
        log.exception("plugin.failed", group=group, name=point.name, why=str(error))
        return None
    log.info("plugin.loaded", group=group, name=point.name, value=point.value)
    plugged: Callable[..., Any] = plugin
    return plugged
