"""Catalogs added by users, in `catalog_metadata`, and the versions of policies for their tables."""

import json
from collections.abc import Iterable

from amoro_core.errors import AlreadyExists, CatalogNotFound
from amoro_core.model.optimizing_config import PolicyVersion
from amoro_core.model.paging import Page
from amoro_core.model.processes import CatalogConfig, SiteFile
from amoro_core.store.connection import Codec, Connection, Duplicate, RowMapping, to_json

_CATALOGS = RowMapping(
    CatalogConfig,
    name="catalog_name",
    site_files="site_files_json",
    without=["strict_locations", "policies"],
    codecs={
        "site_files": Codec(
            lambda files: to_json([(file.name, file.content, dict(file.properties)) for file in files]),
            lambda text: tuple(
                SiteFile(name, content, tuple(properties.items())) for name, content, properties in json.loads(text)
            ),
        )
    },
)


def add(db: Connection, config: CatalogConfig) -> CatalogConfig:
    """Raises AlreadyExists."""
    try:
        db.insert("catalog_metadata", _CATALOGS.to_row(config))
    except Duplicate as error:
        if find(db, config.name) is None:
            raise
        raise AlreadyExists(f"catalog {config.name!r} exists already") from error
    return config


def find(db: Connection, name: str) -> CatalogConfig | None:
    """The catalog of that name; None when there is none."""
    return _CATALOGS.find(db, "SELECT * FROM catalog_metadata WHERE catalog_name = :name", {"name": name})


def list_catalogs(db: Connection) -> list[CatalogConfig]:
    """All of them, in order of their names."""
    return _CATALOGS.select(db, "SELECT * FROM catalog_metadata ORDER BY catalog_name")


def page(db: Connection, after: str, limit: int) -> Page[CatalogConfig]:
    """At most `limit` of them after a name, by their names."""
    return _CATALOGS.page(db, "catalog_metadata", "catalog_name", after, limit)


def existing_among(db: Connection, names: Iterable[str]) -> frozenset[str]:
    """Those of the names that a catalog has."""
    rows = db.select(
        "SELECT catalog_name FROM catalog_metadata WHERE catalog_name IN (SELECT value FROM json_each(:names))",
        {"names": json.dumps(list(names))},
    )
    return frozenset(row["catalog_name"] for row in rows)


def save(db: Connection, config: CatalogConfig) -> CatalogConfig:
    """Replace the catalog of that name. Raises CatalogNotFound."""
    if not db.update("catalog_metadata", _CATALOGS.to_row(config), "catalog_name"):
        raise _missing(config.name)
    return config


def remove(db: Connection, name: str) -> None:
    """Delete the catalog; its tables' runtimes stay. Raises CatalogNotFound."""
    if not db.execute("DELETE FROM catalog_metadata WHERE catalog_name = :name", {"name": name}):
        raise _missing(name)


_VERSIONS = RowMapping(PolicyVersion, text="policies")


def add_policies(db: Connection, version: PolicyVersion) -> None:
    """Keep a version of the policies, which holds from now on. Raises Duplicate for a number that is there."""
    db.insert("policy_version", _VERSIONS.to_row(version))


def find_policies(db: Connection, version: int = 0) -> PolicyVersion | None:
    """That version of the policies, or with 0 the last one; None when there is none."""
    sql = "SELECT * FROM policy_version WHERE :version IN (0, version) ORDER BY version DESC LIMIT 1"
    return _VERSIONS.find(db, sql, {"version": version})


def _missing(name: str) -> CatalogNotFound:
    return CatalogNotFound(f"catalog {name!r} is not known", hint="`amoro catalog list` shows the known ones.")
