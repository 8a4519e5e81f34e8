"""The known catalogs: those added here, those of pyiceberg's configuration, and our own with their tables."""

import difflib
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from amoro_core.errors import (
    AccessDenied,
    AlreadyExists,
    AmoroError,
    CatalogMisconfigured,
    CatalogNotFound,
    CatalogUnavailable,
    CommitConflict,
    Conflict,
    InvalidArgument,
    StorageFull,
    TableNotFound,
)
from amoro_core.formats.tables import Formats
from amoro_core.iceberg import metadata_updates
from amoro_core.iceberg.catalog.catalogs import catalog_errors, granted, open_catalog
from amoro_core.iceberg.catalog.internal import InternalCatalog, Name, TableChange, TableState, parsed
from amoro_core.iceberg.metadata_updates import Json, new_table
from amoro_core.iceberg.pyiceberg_sandbox import confined_to
from amoro_core.logger import get_logger
from amoro_core.model.location_policy import Grant, is_strict
from amoro_core.model.optimizing_config import PolicyVersion, check_defaults
from amoro_core.model.paging import Page, Window, cut, page_limit
from amoro_core.model.paths import flaw_of_prefix
from amoro_core.model.principals import is_pattern, parse_pattern
from amoro_core.model.processes import INTERNAL_FILE, CatalogConfig, CatalogRules, SiteFile
from amoro_core.model.tables import TableFilter, TableIdentifier, discovery_filter, parse_table
from amoro_core.model.text_sanitizing import LONGEST_REASON, NAMES, briefly, is_name, without_secrets
from amoro_core.services.policies import parse_policies
from amoro_core.store import catalogs, table_listing, tables
from amoro_core.store.database import Connection, Store

#: Those of the catalog among them: who offers the use cases goes through services.
__all__ = [
    "CatalogChange",
    "CatalogService",
    "InternalCatalog",
    "InternalCatalogService",
    "TableChange",
    "TableState",
    "table_request",
]

log = get_logger("amoro.catalogs")

_ADD_ONE = "Add one with `amoro catalog add NAME type=… uri=…`, or configure it in ~/.pyiceberg.yaml."


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """A change of a catalog; whatever is not given stays."""

    properties: Mapping[str, str] = field(default_factory=dict)  # replaced or added
    removed_properties: frozenset[str] = frozenset()
    allowed_locations: tuple[str, ...] = ()  # added
    removed_locations: frozenset[str] = frozenset()
    site_files: Mapping[str, str] = field(default_factory=dict)  # replaced or added: name and content
    removed_site_files: frozenset[str] = frozenset()


#: Tables of a catalog are counted up to here.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class CatalogLook:
    """What is known of a catalog without asking it."""

    catalog: str
    tables: int
    tables_is_exact: bool
    heard_at: datetime | None  # when it was last asked; None: not since the start
    failure: str  # why it did not answer then; "": it did


@dataclass
class CatalogService:
    """Catalogs by name. One added here hides one of the same name in pyiceberg's configuration.

    Returned catalogs include the properties of their uploaded files as defaults, and the rules of settings for
    locations.
    """

    store: Store
    formats: Formats
    foreign: Callable[[], Sequence[CatalogConfig]]
    clock: Callable[[], datetime]
    rules: Callable[[str], CatalogRules] = CatalogRules
    #: The last answer of each catalog since the start, to a request for a table or a list of tables: time and failure.
    _answers: dict[str, tuple[datetime, str]] = field(init=False, default_factory=dict)

    def list_catalogs(self) -> list[CatalogConfig]:
        """All known catalogs, in order of their names."""
        own, policies = self.store.read(lambda db: (catalogs.list_catalogs(db), catalogs.find_policies(db)))
        by_name = {config.name: config for config in (*self.foreign(), *own)}
        return [self._whole(by_name[name], policies) for name in sorted(by_name)]

    def page(self, window: Window) -> Page[CatalogConfig]:
        """Known catalogs after a name, in order of their names; those of pyiceberg's configuration are read anew."""
        foreign = sorted(self.foreign(), key=lambda config: config.name)

        def read(db: Connection) -> Page[CatalogConfig]:
            most = page_limit(window.limit)
            hidden = catalogs.existing_among(db, [config.name for config in foreign])
            visible = [config for config in foreign if config.name not in hidden]
            own = catalogs.page(db, window.after, most + 1)
            both = [*own.items, *(config for config in visible if config.name > window.after)]
            both.sort(key=lambda config: config.name)
            return cut(both[: most + 1], most, own.total + len(visible), lambda config: config.name)

        return self.store.read(read).mapped(self._whole)

    def get(self, name: str) -> CatalogConfig:
        """Raises CatalogNotFound."""
        own, policies = self.store.read(lambda db: (catalogs.find(db, name), catalogs.find_policies(db)))
        if own is not None:
            return self._whole(own, policies)
        result = {config.name: config for config in self.list_catalogs()}
        if name in result:
            return result[name]
        close = difflib.get_close_matches(name, result, n=1)
        if close:
            hint = f"Did you mean {close[0]}?"
        elif result:
            hint = f"Known catalogs: {', '.join(result)}."
        else:
            hint = _ADD_ONE
        raise CatalogNotFound(f"catalog {name!r} is not known", hint=hint)

    def add(self, config: CatalogConfig, site_files: Mapping[str, str] | None = None) -> CatalogConfig:
        """Store a catalog after testing its connection. Raises AlreadyExists, InvalidArgument, CatalogUnavailable."""
        if not is_name(config.name) or any(letter in config.name for letter in ".`/"):
            raise InvalidArgument(f"{config.name!r} can't be the name of a catalog", hint=NAMES)
        if self.store.read(lambda db: catalogs.find(db, config.name)) is not None:
            raise AlreadyExists(f"catalog {config.name!r} exists already")
        _require_prefixes(config.allowed_locations)
        config = replace(config, site_files=self._read(config.site_files, site_files or {}))
        if config.is_internal:
            from amoro_core.iceberg.catalog.internal import create_database  # it loads pyiceberg

            create_database(self.internal_file)
        self._check(config)
        self.store.write(lambda db: catalogs.add(db, config))
        return self._whole(config)

    def update(
        self, name: str, change: CatalogChange, condition: Callable[[CatalogConfig], None] | None = None
    ) -> CatalogConfig:
        """Change a catalog, after testing the new connection.

        `condition` is asked of what the catalog is before; what is changed during the test is a Conflict. Raises
        CatalogNotFound, InvalidArgument (a catalog configured by pyiceberg, removal of what does not exist),
        CatalogUnavailable, and what the condition raises; nothing is changed then.
        """
        _require_prefixes(change.allowed_locations)
        before = self._own(name, "changed")
        if condition is not None:
            condition(self._whole(before))
        after = _changed(before, change)
        after = replace(after, site_files=self._read(after.site_files, change.site_files))
        self._check(after)

        def keep(db: Connection) -> CatalogConfig:
            now = catalogs.find(db, name)
            if now != before:
                if condition is not None and now is not None:
                    condition(self._whole(now))
                raise Conflict(f"catalog {name!r} was changed meanwhile", hint="Look at it and try again.")
            return catalogs.save(db, after)

        self.store.write(keep)
        log.info("catalog.updated", catalog=name)
        return self._whole(after)

    def _whole(self, config: CatalogConfig, version: PolicyVersion | None = None) -> CatalogConfig:
        policies = parse_policies(version.text) if version else ()
        whole = config.with_site_files().with_rules(self.rules(config.name))
        return self._located(replace(whole, policies=policies))

    def _located(self, config: CatalogConfig) -> CatalogConfig:
        """The catalog; an internal one with the URI of its file, wherever the state directory is by now."""
        if not config.is_internal:
            return config
        properties = {**dict(config.properties), "uri": f"sqlite:///{self.internal_file}"}
        return replace(config, properties=tuple(sorted(properties.items())))

    @property
    def internal_file(self) -> Path:
        """The file of all internal catalogs, beside the state database."""
        return self.store.path.with_name(INTERNAL_FILE)

    def _check(self, config: CatalogConfig) -> None:
        whole = self._located(config.with_site_files())
        is_strict(whole)
        discovery_filter(dict(whole.properties))
        check_defaults(dict(whole.properties))
        self.formats.check(whole)

    def _read(self, stored: tuple[SiteFile, ...], added: Mapping[str, str]) -> tuple[SiteFile, ...]:
        """The files sorted by name; added ones replace known ones of the same name. Raises InvalidArgument."""
        from amoro_core.iceberg.catalog.configuration import read_site  # it loads parsers of XML

        files = {file.name: file for file in stored}
        files |= {name: read_site(name, content) for name, content in added.items()}
        return tuple(files[name] for name in sorted(files))

    def remove(self, name: str) -> int:
        """Remove a catalog and the state of its tables, which are not touched; returns the number of tables.

        Raises CatalogNotFound, InvalidArgument (a catalog configured by pyiceberg), and TableBusy while a process is
        active on any of its tables; nothing is changed then.
        """
        self._own(name, "removed")

        def forget(db: Connection) -> int:
            forgotten = tables.remove_all(db, name)
            catalogs.remove(db, name)
            return forgotten

        forgotten = self.store.write(forget)
        log.info("catalog.removed", catalog=name, tables=forgotten)
        return forgotten

    def _own(self, name: str, verb: str) -> CatalogConfig:
        """The catalog if it was added here; only then it can be changed or removed."""
        config = self.store.read(lambda db: catalogs.find(db, name))
        if config is not None:
            return config
        self.get(name)
        raise InvalidArgument(
            f"catalog {name!r} is defined in pyiceberg's own configuration and can't be {verb} here",
            hint="Edit ~/.pyiceberg.yaml or the PYICEBERG_CATALOG__… variables of the coordinator; allow locations "
            f"in its amoro.yaml: catalogs: {{{name}: {{allow-locations: [PREFIX]}}}}",
        )

    def commits_refused(self, config: CatalogConfig) -> str | None:
        """Why the catalog can't commit, including misconfiguration; None when it can."""
        try:
            return self.formats.commits_refused(config)
        except CatalogMisconfigured as error:
            return error.message

    def note_answer(self, catalog: str, error: AmoroError | None) -> None:
        """The catalog answered now, or failed; one that denies access to something answers."""
        failed = error is not None and not isinstance(error, AccessDenied)
        failure = briefly(without_secrets(error.message), LONGEST_REASON) if error is not None and failed else ""
        self._answers[catalog] = (self.clock(), failure)

    def looks(self, names: Sequence[str]) -> list[CatalogLook]:
        """What is known of each of these catalogs, in the order given."""
        counted = self.store.read(
            lambda db: [table_listing.count(db, TableFilter(catalog=name), MOST_COUNTED + 1) for name in names]
        )
        return [
            CatalogLook(name, min(tables, MOST_COUNTED), tables <= MOST_COUNTED, *self._answers.get(name, (None, "")))
            for name, tables in zip(names, counted, strict=True)
        ]

    def resolve(self, text: str) -> TableIdentifier:
        """The table named by a text; its catalog may be left out if exactly one is known.

        A whole number is the table of that number. Raises InvalidArgument, CatalogNotFound, TableNotFound for a number.
        """
        if text.isascii() and text.isdigit():
            names = self.store.read(lambda db: tables.names(db, [int(text)])) if int(text) < 2**63 else {}
            if int(text) not in names:
                raise TableNotFound(f"no table has the number {int(text)}", hint="See: amoro table list")
            return names[int(text)]
        catalog_names = [config.name for config in self.list_catalogs()]
        only = catalog_names[0] if len(catalog_names) == 1 else None
        try:
            identifier = parse_table(text, only)
        except InvalidArgument:
            parse_table(text, "any")  # raises if it is no table's name even without a catalog
            if not catalog_names:
                raise CatalogNotFound(f"no catalog is known, so that {text} names no table", hint=_ADD_ONE) from None
            raise InvalidArgument(
                f"{text} lacks its catalog, and there are several",
                hint=f"Write {catalog_names[0]}.{text}, or another one of: {', '.join(catalog_names)}.",
            ) from None
        if only is not None and identifier.catalog != only and len(identifier.namespace) >= 1:
            # "a.b.t" with one catalog "cat" may be cat.a.b.t; a catalog's own name wins.
            identifier = TableIdentifier(only, (identifier.catalog, *identifier.namespace), identifier.name)
        self.get(identifier.catalog)
        return identifier

    def select(self, names: Sequence[str]) -> tuple[list[TableIdentifier], dict[str, AmoroError]]:
        """The distinct tables selected by names and patterns, in order; without names, those of all catalogs.

        Catalogs are listed again for patterns; also returns those that can't be listed, with their errors. Raises
        InvalidArgument, and TableNotFound for a pattern without a match when all catalogs could be listed.
        """
        catalog_names = [config.name for config in self.list_catalogs()]
        only = catalog_names[0] if len(catalog_names) == 1 else None
        listed: dict[str, list[TableIdentifier]] = {}
        unlisted: dict[str, AmoroError] = {}
        result: dict[TableIdentifier, None] = {}
        for name in names or ("*",):
            if not is_pattern(name):
                result[self.resolve(name)] = None
                continue
            pattern = parse_pattern(name)
            concerned = pattern.catalogs(catalog_names)
            for catalog in concerned:
                if catalog not in listed and catalog not in unlisted:
                    try:
                        listed[catalog] = self.listed(catalog)
                    except AmoroError as error:
                        unlisted[catalog] = error
            matches = pattern.matcher(only)
            meant = [table for catalog in concerned for table in listed.get(catalog, ()) if matches(table)]
            if names and not meant and not unlisted.keys() & set(concerned):
                raise TableNotFound(f"no table matches {name!r}", hint="See: amoro catalog list, amoro table list")
            result |= dict.fromkeys(meant)
        return list(result), unlisted

    def select_ids(self, text: str) -> set[int]:
        """The numbers of the known tables that match a name or pattern. Raises InvalidArgument, TableNotFound."""
        names = [config.name for config in self.list_catalogs()]
        matches = parse_pattern(text).matcher(names[0] if len(names) == 1 else None)
        ids = {table_id for table_id, name in self.store.read(table_listing.list_names) if matches(name)}
        if not ids:
            raise TableNotFound(f"no known table matches {text!r}", hint="See: amoro table list")
        return ids

    def listed(self, name: str) -> list[TableIdentifier]:
        """The tables of one catalog, which is asked for them. Raises CatalogNotFound and what listing raises."""
        return self.formats.list_tables(self.get(name))


def _require_prefixes(prefixes: Iterable[str]) -> None:
    """Raise InvalidArgument for the first prefix that is invalid or covers everything."""
    for prefix in prefixes:
        if flaw := flaw_of_prefix(prefix):
            raise InvalidArgument(
                f"{prefix!r} is not a location that can be allowed: {flaw}",
                hint="Name a directory or a bucket's prefix, such as /data/lake or s3://bucket/lake.",
            )


def _changed(config: CatalogConfig, change: CatalogChange) -> CatalogConfig:
    """The changed catalog. Raises InvalidArgument for removal of what does not exist."""
    before = dict(config.properties)
    for kind, removed, present in (
        ("property", change.removed_properties, frozenset(before)),
        ("allowed location", change.removed_locations, frozenset(config.allowed_locations)),
        ("file", change.removed_site_files, frozenset(file.name for file in config.site_files)),
    ):
        for item in sorted(removed - present):
            raise InvalidArgument(f"catalog {config.name!r} has no {kind} {item!r} to remove")
    rest = {key: value for key, value in before.items() if key not in change.removed_properties}
    locations = [item for item in config.allowed_locations if item not in change.removed_locations]
    return replace(
        config,
        properties=tuple(sorted({**rest, **change.properties}.items())),
        allowed_locations=tuple(dict.fromkeys((*locations, *change.allowed_locations))),
        site_files=tuple(file for file in config.site_files if file.name not in change.removed_site_files),
    )


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
            schema, properties = metadata_updates.field(request, "schema", dict), request.get("properties") or {}
            parts = (request.get("partition-spec"), request.get("write-order"))
            result: dict[str, Any] = parsed(lambda: new_table(schema, *parts, location.rstrip("/"), properties, now_ms))
            return result

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
        if not (match := re.fullmatch(r"(\S+)\s+(.+?)(\s+not\s+null)?", text.strip(), re.IGNORECASE)):
            raise InvalidArgument(f"{text!r} is no column", hint='Write a name and a type, such as "id long not null".')
        fields.append({"id": number, "name": match[1], "type": match[2].lower(), "required": bool(match[3])})
    ids, parts = {field["name"]: field["id"] for field in fields}, []
    for text in partition:
        match = re.fullmatch(r"(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?)?([^(),]+?)\)?", text.strip())
        if not match or match[3] not in ids:
            raise InvalidArgument(
                f"{text!r} partitions by none of the columns {', '.join(ids)}", hint="Such as day(at)."
            )
        transform = f"{match[1] or 'identity'}{f'[{match[2]}]' if match[2] else ''}"
        name = f"{match[3]}_{match[1]}" if match[1] else match[3]
        parts.append({"source-id": ids[match[3]], "transform": transform, "name": name})
    schema = {"type": "struct", "fields": fields}
    place = {"location": location} if location else {}
    return {"schema": schema, "partition-spec": {"fields": parts}, "properties": dict(properties), **place}


def _safe(part: str) -> str:
    """The part of a name as a directory."""
    return re.sub(r"[^\w-]", "_", part, flags=re.ASCII)
