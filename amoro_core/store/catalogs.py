"""Catalogs added by users, in `catalog_metadata`."""

import json
from collections.abc import Iterable

from amoro_core.errors import AlreadyExists, CatalogNotFound
from amoro_core.model.processes import CatalogConfig, SiteFile
from amoro_core.store.connection import (
    Connection,
    Duplicate,
    Row,
    insert_into,
    pairs_from_json,
    pairs_to_json,
    to_json,
    tuple_from_json,
    update_of,
)

_COLUMNS = ("catalog_name", "origin", "properties_json", "allowed_locations_json", "site_files_json")
_INSERT = insert_into("catalog_metadata", _COLUMNS)
_UPDATE = update_of("catalog_metadata", _COLUMNS, ("catalog_name",))


def add(db: Connection, config: CatalogConfig) -> CatalogConfig:
    """Raises AlreadyExists."""
    try:
        db.execute(_INSERT, _to_row(config))
    except Duplicate as error:
        if find(db, config.name) is None:
            raise
        raise AlreadyExists(f"catalog {config.name!r} exists already") from error
    return config


def find(db: Connection, name: str) -> CatalogConfig | None:
    """The catalog of that name; None when there is none."""
    row = db.select_one("SELECT * FROM catalog_metadata WHERE catalog_name = :name", {"name": name})
    return None if row is None else _from_row(row)


def list_catalogs(db: Connection) -> list[CatalogConfig]:
    """All of them, in order of their names."""
    return [_from_row(row) for row in db.select("SELECT * FROM catalog_metadata ORDER BY catalog_name")]


def list_page(db: Connection, after: str, limit: int) -> list[CatalogConfig]:
    """At most `limit` of those with greater names, in order of their names."""
    rows = db.select(
        "SELECT * FROM catalog_metadata WHERE catalog_name > :after ORDER BY catalog_name LIMIT :limit",
        {"after": after, "limit": limit},
    )
    return [_from_row(row) for row in rows]


def count(db: Connection) -> int:
    """How many there are."""
    return db.count("catalog_metadata")


def known_among(db: Connection, names: Iterable[str]) -> frozenset[str]:
    """Those of the names that a catalog has."""
    rows = db.select(
        "SELECT catalog_name FROM catalog_metadata WHERE catalog_name IN (SELECT value FROM json_each(:names))",
        {"names": json.dumps(list(names))},
    )
    return frozenset(row["catalog_name"] for row in rows)


def save(db: Connection, config: CatalogConfig) -> CatalogConfig:
    """Replace the catalog of that name. Raises CatalogNotFound."""
    if not db.execute(_UPDATE, _to_row(config)):
        raise _missing(config.name)
    return config


def remove(db: Connection, name: str) -> None:
    """Delete the catalog; its tables' runtimes stay. Raises CatalogNotFound."""
    if not db.execute("DELETE FROM catalog_metadata WHERE catalog_name = :name", {"name": name}):
        raise _missing(name)


def _missing(name: str) -> CatalogNotFound:
    return CatalogNotFound(f"catalog {name!r} is not known", hint="`amoro catalog list` shows the known ones.")


def _to_row(config: CatalogConfig) -> Row:
    return {
        "catalog_name": config.name,
        "origin": config.origin,
        "properties_json": pairs_to_json(config.properties),
        "allowed_locations_json": to_json(config.allowed_locations),
        "site_files_json": to_json([(file.name, file.content, dict(file.properties)) for file in config.site_files]),
    }


def _from_row(row: Row) -> CatalogConfig:
    return CatalogConfig(
        name=row["catalog_name"],
        properties=pairs_from_json(row["properties_json"]),
        allowed_locations=tuple_from_json(row["allowed_locations_json"]),
        origin=row["origin"],
        site_files=tuple(
            SiteFile(name, content, tuple(properties.items()))
            for name, content, properties in json.loads(row["site_files_json"])
        ),
    )
