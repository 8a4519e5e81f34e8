"""Catalogs of our own, which engines reach over Iceberg REST: tables are created, and a commit is seen at once."""

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from amoro_core.errors import CatalogNotFound, CatalogUnavailable, CommitConflict, InvalidArgument, StorageFull
from amoro_core.iceberg.catalog.catalogs import catalog_errors, granted, open_catalog
from amoro_core.iceberg.catalog.internal import InternalCatalog, TableChange, TableState, parsed
from amoro_core.iceberg.metadata_updates import Json, field, new_table
from amoro_core.iceberg.pyiceberg_sandbox import confined_to
from amoro_core.model.location_policy import Grant
from amoro_core.model.tables import TableIdentifier
from amoro_core.services.catalogs import CatalogService

__all__ = ["InternalCatalog", "InternalCatalogService", "TableChange", "TableState", "table_request"]

Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InternalCatalogService:
    """Namespaces and tables of catalogs of the kind `internal`."""

    catalogs: CatalogService
    committed: Callable[[TableIdentifier], None]  # is told each table that somebody else has changed

    def names(self) -> list[str]:
        """The internal catalogs, sorted."""
        return [config.name for config in self.catalogs.list_catalogs() if config.is_internal]

    @contextmanager
    def opened(self, name: str) -> Iterator[tuple[InternalCatalog, Grant]]:
        """The catalog, and where its tables' files may lie. Raises CatalogNotFound, CatalogUnavailable."""
        config = self.catalogs.get(name)
        if not config.is_internal:
            raise CatalogNotFound(
                f"catalog {name!r} is none of our own: its tables are reached through its own server",
                hint="Add one: amoro catalog add NAME type=internal warehouse=URI",
            )
        catalog: Any = open_catalog(config)
        grant = granted(config, catalog)
        with confined_to(grant), catalog_errors(config):
            yield catalog, grant

    def new_metadata(self, catalog: str, name: Name, request: Json) -> dict[str, Any]:
        """The metadata of a table that is to be created (CreateTableRequest). Raises InvalidArgument, NotFound."""
        with self.opened(catalog) as (own, _):
            space = own.namespace_properties(name[:-1])
            own.require_free(name)
            location = request.get("location")
            if location is None:
                parent = space.get("location") or "/".join(
                    (own.properties["warehouse"].rstrip("/"), *map(_safe, name[:-1]))
                )
                # A table of the same name that is created later must not share the place.
                location = f"{parent.rstrip('/')}/{_safe(name[-1])}-{uuid.uuid4().hex[:8]}"
            now_ms = round(time.time() * 1000)
            schema, properties = field(request, "schema", dict), request.get("properties") or {}
            parts = (request.get("partition-spec"), request.get("write-order"))
            made: dict[str, Any] = parsed(lambda: new_table(schema, *parts, location.rstrip("/"), properties, now_ms))
            return made

    def create(self, catalog: str, name: Name, metadata: Json) -> TableState:
        """Create the table. Raises AlreadyExists, NotFound, InvalidArgument."""
        with self.opened(catalog) as (own, grant):
            state = own.add_table(name, metadata, grant)
        self.committed(TableIdentifier(catalog, name[:-1], name[-1]))
        return state

    def register(self, catalog: str, name: Name, metadata_location: str, *, overwrite: bool) -> TableState:
        """Make the metadata file a table of that name. Raises like `create`."""
        with self.opened(catalog) as (own, grant):
            state = own.register(name, metadata_location, grant, overwrite=overwrite)
        self.committed(TableIdentifier(catalog, name[:-1], name[-1]))
        return state

    def commit(self, catalog: str, changes: Sequence[TableChange]) -> list[TableState]:
        """Change all tables or none. Raises like `InternalCatalog.commit`: what is not unknown was not applied."""
        try:
            with self.opened(catalog) as (own, grant):
                states = own.commit(changes, grant)
        except (CatalogUnavailable, StorageFull) as error:
            raise CommitConflict(f"nothing was changed: {error.message}", hint=error.hint) from error
        for change in changes:
            self.committed(TableIdentifier(catalog, change.name[:-1], change.name[-1]))
        return states


def table_request(
    columns: Sequence[str], partition: Sequence[str], location: str, properties: Mapping[str, str]
) -> dict[str, Any]:
    """The request (CreateTableRequest) for a table of columns such as "id long not null" with partitions such as
    "bucket(16, id)". Raises InvalidArgument."""
    fields: list[dict[str, Any]] = []
    for number, text in enumerate(columns, 1):
        if not (found := re.fullmatch(r"(\S+)\s+(.+?)(\s+not\s+null)?", text.strip(), re.IGNORECASE)):
            raise InvalidArgument(f"{text!r} is no column", hint='Write a name and a type, such as "id long not null".')
        fields.append({"id": number, "name": found[1], "type": found[2].lower(), "required": bool(found[3])})
    ids, parts = {one["name"]: one["id"] for one in fields}, []
    for text in partition:
        found = re.fullmatch(r"(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?)?([^(),]+?)\)?", text.strip())
        if not found or found[3] not in ids:
            raise InvalidArgument(
                f"{text!r} partitions by none of the columns {', '.join(ids)}", hint="Such as day(at)."
            )
        transform = f"{found[1] or 'identity'}{f'[{found[2]}]' if found[2] else ''}"
        name = f"{found[3]}_{found[1]}" if found[1] else found[3]
        parts.append({"source-id": ids[found[3]], "transform": transform, "name": name})
    schema = {"type": "struct", "fields": fields}
    place = {"location": location} if location else {}
    return {"schema": schema, "partition-spec": {"fields": parts}, "properties": dict(properties), **place}


def _safe(part: str) -> str:
    """The part of a name as a directory."""
    return re.sub(r"[^\w-]", "_", part, flags=re.ASCII)
