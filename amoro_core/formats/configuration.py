"""Every table property that has a meaning here, for checks, docs and `amoro table properties`."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.files.schema.write_options import OF_COLUMNS, WriterOptions, writer_options
from amoro_core.iceberg.manifest.writing import MergeSettings, merge_settings
from amoro_core.maintenance.data_expiry import DanglingConfig, DataExpiryConfig
from amoro_core.maintenance.manifests import ManifestConfig
from amoro_core.maintenance.orphans import OrphanConfig
from amoro_core.maintenance.schedule import MaintenanceConfig
from amoro_core.maintenance.snapshots import RetentionConfig, TagConfig
from amoro_core.maintenance.statistics import StatisticsConfig
from amoro_core.maintenance.table_services import ServiceConfig
from amoro_core.maintenance.trash import TrashConfig
from amoro_core.model.optimizing_config import (
    ENABLED_KEY,
    POLICY_PREFIX,
    EffectiveProperty,
    OptimizingConfig,
    catalog_defaults,
    decide_enabled,
    parse_config,
)
from amoro_core.model.properties import EACH_COLUMN, Property, boolean, parse_into, properties_of
from amoro_core.model.tables import Origin
from amoro_core.model.text_sanitizing import is_text
from amoro_core.planning.clustering.model import ClusteringConfig


@dataclass(frozen=True, slots=True)
class Configuration:
    """The properties of one subject."""

    subject: str
    properties: tuple[Property, ...]
    check: Callable[[Mapping[str, str]], object]  # raises TableRefused("configuration")
    #: Whether a catalog's property under `table.` is the default of its tables. Properties that other writers use are
    #: set on tables only.
    has_catalog_defaults: bool = True


def _parsed(subject: str, kind: type[Any]) -> Configuration:
    return Configuration(subject, properties_of(kind), partial(parse_into, kind))


CONFIGURATIONS: tuple[Configuration, ...] = (
    Configuration(
        "Optimizing", (Property(ENABLED_KEY, "false", boolean), *properties_of(OptimizingConfig)), parse_config
    ),
    _parsed("Clustering", ClusteringConfig),
    Configuration(
        "Files that are written",
        (*properties_of(WriterOptions), *OF_COLUMNS),
        writer_options,
        has_catalog_defaults=False,
    ),
    _parsed("Automatic tags", TagConfig),
    _parsed("Dangling delete files", DanglingConfig),
    _parsed("Expiry of snapshots", RetentionConfig),
    _parsed("Statistics", StatisticsConfig),
    _parsed("Data expiry", DataExpiryConfig),
    _parsed("Manifests written anew", ManifestConfig),
    _parsed("Amoro's trash", TrashConfig),
    _parsed("Maintenance", MaintenanceConfig),
    _parsed("Orphan files", OrphanConfig),
    Configuration("Manifests", properties_of(MergeSettings), merge_settings, has_catalog_defaults=False),
    _parsed("Services of Hudi and Paimon tables", ServiceConfig),
)


#: The prefix of keys that only tables have whose format's own engine does services.
_SERVICES = "table-service."
#: Prefixes of our own keys: an unknown key with such a prefix is probably a typo.
_OURS = (
    "self-optimizing.",
    "tag.auto-create.",
    "maintenance.",
    "snapshot.keep.",
    "table-expire.",
    "clean-orphan-file.",
    "data-expire.",
    "table-trash.",
    _SERVICES,
)


#: Beginnings of keys that are not set here: Iceberg keeps them in the metadata itself, or they move the table's files,
#: share them, read them otherwise, or name classes that writers run.
_REFUSED = (
    "format-version", "uuid", "snapshot-count", "current-snapshot-", "current-schema", "default-partition-spec",
    "default-sort-order", "location", "provider", "gc.enabled", "schema.name-mapping.", "encryption.",
    "write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path",
    "write.location-provider.impl", "write.py-location-provider.impl",
)  # fmt: skip


def check_change(changes: Mapping[str, str | None]) -> None:
    """Raise InvalidArgument for a change of a table's properties (None: removed) that is refused, malformed or, with
    one of our prefixes, unknown."""
    wanted = {key: value for key, value in changes.items() if value is not None}
    for key in changes:
        if not key.strip() or not is_text(key):
            raise InvalidArgument(
                f"{key!r} is not the key of a property", hint="Write KEY=VALUE, or KEY- to remove it."
            )
        if key.startswith(_REFUSED):
            raise InvalidArgument(
                f"the property {key} is not changed here: it is reserved, or moves, shares or reinterprets files",
                hint="Use the engine that writes the table; amoro table upgrade raises the format version.",
            )
    names = {item.key for item in effective_config({}, wanted, serviced=True) if item.origin is not Origin.UNKNOWN}
    for key in wanted:
        if key.startswith(_OURS) and key not in names:
            close = difflib.get_close_matches(key, names, n=1, cutoff=0.8)
            raise InvalidArgument(
                f"the property {key} is not known",
                hint=f"Did you mean {close[0]}?" if close else "amoro table properties TABLE lists those that are.",
            )
    try:
        decide_enabled(None, wanted, {})
        for configuration in CONFIGURATIONS:
            configuration.check(wanted)
    except TableRefused as error:
        raise InvalidArgument(error.message, hint="Give another value; nothing was changed.") from error


def check_policy(name: str, values: Mapping[str, str]) -> None:
    """Raise InvalidArgument for properties of a policy that are unknown, malformed, or of tables alone."""
    names = {item.key for group in CONFIGURATIONS if group.has_catalog_defaults for item in group.properties}
    try:
        check_change(values)
        if other := next((key for key in values if key not in names), ""):
            raise InvalidArgument(f"{other} is no property that policies set", hint="See: amoro table set")
    except InvalidArgument as error:
        raise InvalidArgument(f"policy {name}: {error.message}", hint=error.hint) from error


def effective_config(
    catalog: Mapping[str, str], table: Mapping[str, str], *, serviced: bool = False
) -> tuple[EffectiveProperty, ...]:
    """Every property with its value and origin; per-column properties only where set, those of services if `serviced`.

    The default of `self-optimizing.enabled` is false: a table is only observed until enabled. `amoro table
    enable|disable` is not a property; `decide_enabled` combines the two. Unknown keys with one of our prefixes follow.
    """
    result: list[EffectiveProperty] = []
    defaults = catalog_defaults(catalog)
    for configuration in CONFIGURATIONS:
        for declaration in configuration.properties:
            if serviced or not declaration.key.startswith(_SERVICES):
                result += _effective(declaration, defaults if configuration.has_catalog_defaults else {}, table)
    for at, item in enumerate(result):
        if item.origin == Origin.CATALOG and (policy := catalog.get(f"{POLICY_PREFIX}{item.key}")):
            result[at] = replace(item, origin=f"{Origin.POLICY} {policy}")
    keys, values = {item.key for item in result}, {**defaults, **table}
    unknown = sorted(key for key in values if key.startswith(_OURS) and key not in keys)
    return (*result, *(EffectiveProperty(key, values[key], Origin.UNKNOWN) for key in unknown))


def _effective(declaration: Property, defaults: Mapping[str, str], table: Mapping[str, str]) -> list[EffectiveProperty]:
    if declaration.key.endswith(EACH_COLUMN):
        start = declaration.key.removesuffix(EACH_COLUMN)
        return [EffectiveProperty(key, table[key], Origin.TABLE) for key in sorted(table) if key.startswith(start)]
    if declaration.key in table:
        return [EffectiveProperty(declaration.key, table[declaration.key], Origin.TABLE, declaration.default)]
    if declaration.key in defaults:
        return [EffectiveProperty(declaration.key, defaults[declaration.key], Origin.CATALOG, declaration.default)]
    return [EffectiveProperty(declaration.key, declaration.default, Origin.DEFAULT, declaration.default)]
