"""What a catalog tells of all its tables in few requests: where their metadata are, and whose they are."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pyiceberg.catalog import METADATA_LOCATION, Catalog

from amoro_core.iceberg.catalogs import catalog_errors, kind_of, open_catalog
from amoro_core.model.processes import CatalogConfig

#: A name of a table in its catalog.
Name = tuple[str, ...]
#: Tables that a Hive metastore is asked for at once.
_OF_HIVE = 300


def locations(config: CatalogConfig, names: Collection[Name]) -> Mapping[Name, str] | None:
    """The locations of metadata of those tables, or of more; of tables that are gone or are no tables of Iceberg none.

    None: catalogs of that kind can only be asked table by table. Raises CatalogUnavailable.
    """
    find = {"sql": _of_sql, "hive": _of_hive, "glue": _of_glue}.get(kind_of(config))
    if find is None:
        return None
    catalog = open_catalog(config)
    with catalog_errors(config):
        return {name: place for name, place in find(catalog, names) if place}


def _of_sql(catalog: Any, names: Collection[Name]) -> Iterator[tuple[Name, str]]:
    spaces: dict[str, Name] = {}
    for space, table, place in catalog.metadata_locations():
        if space not in spaces:
            spaces[space] = Catalog.identifier_to_tuple(space)
        yield (*spaces[space], table), place


def _of_hive(catalog: Any, names: Collection[Name]) -> Iterator[tuple[Name, str]]:
    with catalog._client as client:
        for space, tables in _by_namespace(names).items():
            for start in range(0, len(tables), _OF_HIVE):
                for table in client.get_table_objects_by_name(dbname=space, tbl_names=tables[start : start + _OF_HIVE]):
                    yield (space, table.tableName), (table.parameters or {}).get(METADATA_LOCATION, "")


def _of_glue(catalog: Any, names: Collection[Name]) -> Iterator[tuple[Name, str]]:
    pages = catalog.glue.get_paginator("get_tables")
    for space in _by_namespace(names):
        try:
            for page in pages.paginate(DatabaseName=space):
                for table in page["TableList"]:
                    yield (space, table["Name"]), table.get("Parameters", {}).get(METADATA_LOCATION, "")
        except catalog.glue.exceptions.EntityNotFoundException:
            continue


def _by_namespace(names: Collection[Name]) -> Mapping[str, list[str]]:
    """Tables by namespace, both in order; namespaces of these catalogs have one level."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        if len(name) == 2:
            found[name[0]].append(name[1])
    return found


def other_names(config: CatalogConfig) -> tuple[str, ...]:
    """The names of the catalogs that have tables in a SQL catalog's database where it has none itself.

    A table belongs to the name of the catalog that it was made in. Raises CatalogUnavailable.
    """
    catalog: Any = open_catalog(config)
    with catalog_errors(config):
        found: list[str] = catalog.catalog_names()
    return () if config.name in found else tuple(found)
