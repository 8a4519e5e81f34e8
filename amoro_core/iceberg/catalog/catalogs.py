"""Catalogs of pyiceberg: which are configured, how one is opened, and the tables that it has."""

import difflib
import json
import os
import re
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pydantic
from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.catalog import AVAILABLE_CATALOGS, METADATA_LOCATION, Catalog, CatalogType
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    ValidationError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from pyiceberg.utils.config import Config, merge_config

from amoro_core.errors import (
    AccessDenied,
    AmoroError,
    CatalogMisconfigured,
    CatalogUnavailable,
    DataFileMissing,
    InvalidSettings,
    TableNotFound,
    TableRefused,
)
from amoro_core.files.storage.io import ConfinedFileIO
from amoro_core.iceberg.catalog.configuration import configuration_file
from amoro_core.iceberg.catalog.errors import answered_with, error_text, is_without_rights
from amoro_core.iceberg.catalog.internal import InternalCatalog
from amoro_core.iceberg.catalog.timeouts import limit_driver
from amoro_core.iceberg.metadata import read_locations, write_locations
from amoro_core.iceberg.pyiceberg_sandbox import confined, confined_to, install_guards, last_input, refusing_lost_keys
from amoro_core.iceberg.table_support import format_version_refused, refuse_mixed_hive
from amoro_core.model.location_policy import STRICT_LOCATIONS, Grant, grant_of
from amoro_core.model.processes import INTERNAL, CatalogConfig
from amoro_core.model.tables import DATABASE_FILTER, TABLE_FILTER, TABLE_FORMATS, TableIdentifier
from amoro_core.model.text_sanitizing import MASK, is_secret, without_secrets

#: The tables that were loaded longest ago are forgotten first.
MOST_ETAGS = 200_000


class ETags:
    """The ETags of tables as they were loaded last, of all threads."""

    def __init__(self, most: int = MOST_ETAGS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._etags: OrderedDict[TableIdentifier, tuple[CatalogConfig, str, str]] = OrderedDict()

    def keep(self, config: CatalogConfig, identifier: TableIdentifier, etag: str, metadata_location: str) -> None:
        """Keep the ETag of an answer; an answer without one removes the earlier one."""
        with self._lock:
            self._etags.pop(identifier, None)
            if etag:
                self._etags[identifier] = config, metadata_location, etag
            if len(self._etags) > self._most:
                self._etags.popitem(last=False)

    def find(self, config: CatalogConfig, identifier: TableIdentifier, metadata_location: str) -> str:
        """The ETag of the table with that metadata, loaded through that very configuration; "" without one."""
        with self._lock:
            result = self._etags.get(identifier)
        return result[2] if result and result[:2] == (config, metadata_location) else ""


_METADATA = re.compile(r"(?:v(\d+)|(\d+)-[0-9a-fA-F-]+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_HINT = "version-hint.text"


class DirectoryCatalog(NoopCatalog):
    """Tables below a warehouse; methods that would write are not implemented."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._warehouse = properties["warehouse"].rstrip("/")
        self._io = PyArrowFileIO({key: value for key, value in properties.items() if not key.endswith("impl")})

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """The namespaces directly below one. Raises NoSuchNamespaceError."""
        parent = Catalog.identifier_to_tuple(namespace)
        return [(*parent, name) for name in self._directories(parent) if not self._versions((*parent, name))]

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables directly below a namespace. Raises NoSuchNamespaceError."""
        parent = Catalog.identifier_to_tuple(namespace)
        return [(*parent, name) for name in self._directories(parent) if self._versions((*parent, name))]

    def load_table(self, identifier: str | Identifier) -> Table:
        """Raises NoSuchTableError."""
        parts = Catalog.identifier_to_tuple(identifier)
        versions = self._versions(parts)
        if not versions:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(parts)}")
        # A writer creates the metadata file before it updates the hint: the newest file counts, whatever the hint says.
        location = f"{self._place(parts)}/metadata/{versions[max(versions)]}"
        metadata = FromInputFile.table_metadata(confined(self._io).new_input(location))
        return Table(
            identifier=parts,
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    def close(self) -> None:
        """Does nothing: nothing is held open."""

    def _versions(self, parts: Identifier) -> Mapping[int, str]:
        """The metadata files of what may be a table, by version."""
        result = {}
        for entry in self._entries(f"{self._place(parts)}/metadata") or ():
            match = _METADATA.fullmatch(entry.base_name)
            if match and entry.type == FileType.File:
                result[int(match[1] or match[2])] = entry.base_name
        return result

    def _directories(self, parts: Identifier) -> list[str]:
        entries = self._entries(self._place(parts))
        if entries is None:
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(parts) or self._warehouse}")
        names = [entry.base_name for entry in entries if entry.type == FileType.Directory]
        return sorted(name for name in names if not name.startswith((".", "_")))

    def _entries(self, location: str) -> list[FileInfo] | None:
        """The entries of a directory; None when it does not exist."""
        scheme, netloc, path = self._io.parse_location(location, self.properties)
        files = self._io.fs_by_scheme(scheme, netloc)
        try:
            return list(files.get_file_info(FileSelector(path, recursive=False)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _place(self, parts: Identifier) -> str:
        if any(part in ("", ".", "..") or "/" in part for part in parts):
            raise NoSuchTableError(f"{parts} is not a valid directory name")
        return "/".join((self._warehouse, *parts))


_COMMITTING = frozenset({"sql", "in-memory", "rest", "hive", "glue", INTERNAL})
_NO_COMMITS = {
    "dynamodb": "DynamoDB catalogs have no commit in pyiceberg",
    "bigquery": "BigQuery catalogs have no commit in pyiceberg",
    "hadoop": "Hadoop-style catalogs can't compare and set: a commit may overwrite another one",
    "filesystem": "file-system catalogs can't compare and set: a commit may overwrite another one",
}
_DIRECTORIES = frozenset({"hadoop", "filesystem"})
_EXTRAS = {
    "psycopg2": "sql-postgres",
    "sqlalchemy": "sql-sqlite",
    "hive_metastore": "hive",
    "thrift": "hive",
    "boto3": "glue",
    "botocore": "glue",
    "google": "bigquery",
    "s3fs": "s3fs",
    "adlfs": "adlfs",
    "gcsfs": "gcsfs",
    "azure": "entra-auth",
}
#: Settings that pyiceberg does not accept as strings; nested ones are stored as JSON.
_NO_TEXTS: dict[str, Callable[[str], Any]] = {"auth": json.loads, "ssl": json.loads, "glue.max-retries": int}
#: Properties that are passed to the storage of a catalog's tables; URIs and tokens of the catalog are withheld.
STORAGE_PREFIXES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "pyarrow.", "oss.")
#: Prefixes of properties that are not passed to pyiceberg.
_OURS = ("table.", TABLE_FORMATS, DATABASE_FILTER, TABLE_FILTER, STRICT_LOCATIONS)
_URIS = {
    "sql": "Such as uri=sqlite:////absolute/path.db",
    "rest": "Such as uri=https://host/path",
    "hive": "Such as uri=thrift://host:9083",
}
_KIND_OF_URI = {"http://": "rest", "https://": "rest", "thrift://": "hive", "sqlite": "sql", "postgresql": "sql"}
_KINDS = "Use type=internal for one of our own, or one of pyiceberg's kinds: type=sql, rest, hive, glue."
_CACHED_PER_THREAD = 32
_etags = ETags()

install_guards()


def pyiceberg_catalogs() -> list[CatalogConfig]:
    """The catalogs of pyiceberg's own configuration, sorted by name.

    From the first file in $PYICEBERG_HOME or the home directory, overridden by PYICEBERG_CATALOG__* variables; never
    from the current directory, which may be anybody's. Raises InvalidSettings for a malformed file.
    """
    own = configuration_file()
    try:
        # Variables override the file; a copy is passed since it is modified.
        merged = merge_config(own, Config._from_environment_variables(dict(own)))
    except (ValueError, TypeError) as error:
        raise InvalidSettings(
            f"the environment's PYICEBERG_ variables contradict each other: {error_text(error)}"
        ) from error
    catalogs = merged.get("catalog") or {}
    if not isinstance(catalogs, Mapping):
        raise InvalidSettings("pyiceberg's configuration has something else than catalogs under 'catalog'")
    result = []
    for name, properties in sorted(catalogs.items()):
        if isinstance(properties, Mapping):
            texts = {
                key: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
                for key, value in properties.items()
            }
            result.append(CatalogConfig(str(name), tuple(sorted(texts.items())), origin="pyiceberg"))
    return result


def resolved(config: CatalogConfig) -> dict[str, str]:
    """The catalog's properties; `env:NAME` is an environment variable, `file:/path` a file's content, for secrets and
    the URI only: elsewhere it is a location. Raises CatalogUnavailable when the variable or file is missing."""
    return {key: _resolve(config.name, key, value) for key, value in config.properties}


def _resolve(catalog: str, key: str, value: str) -> str:
    if value.startswith("env:"):
        name = value.removeprefix("env:")
        if name not in os.environ:
            raise CatalogUnavailable(
                f"catalog {catalog}: {key} refers to the environment variable {name}, which is not set",
                hint="Set it where the coordinator is started.",
            )
        return os.environ[name]
    if value.startswith("file:") and (is_secret(key) or key == "uri"):
        path = Path("/" + value.removeprefix("file:").lstrip("/"))
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CatalogUnavailable(
                f"catalog {catalog}: {key} refers to {path}, which can't be read: {error_text(error)}"
            ) from error
    return value


def kind_of(config: CatalogConfig) -> str:
    """The catalog's type in lower case, derived from its URI if not set. Raises CatalogMisconfigured."""
    properties = resolved(config)
    if "py-catalog-impl" in properties:
        raise CatalogMisconfigured(
            f"catalog {config.name}: py-catalog-impl is not allowed, since it runs foreign code", hint=_KINDS
        )
    if kind := properties.get("type"):
        return kind.lower()
    for start, kind in _KIND_OF_URI.items():
        if properties.get("uri", "").startswith(start):
            return kind
    raise CatalogMisconfigured(
        f"catalog {config.name}: neither a type nor a URI tells its kind", hint="Give type=sql, rest, hive or glue."
    )


def commits_refused(config: CatalogConfig) -> str | None:
    """Why this kind of catalog can't commit; None when it can. Raises like `kind_of`."""
    kind = kind_of(config)
    if kind in _COMMITTING:
        return None
    return _NO_COMMITS.get(kind, f"catalogs of the kind {kind} are not known")


def is_polaris(catalog: Catalog) -> bool:
    """Whether the server is Apache Polaris, by the endpoints of its own that it names in its configuration."""
    endpoints = getattr(catalog, "_supported_endpoints", ())  # pyiceberg keeps what `/v1/config` answered nowhere else
    return any(endpoint.path.lstrip("/").startswith("polaris/") for endpoint in endpoints)


def warehouse_of(config: CatalogConfig, catalog: Catalog) -> tuple[str, ...]:
    """The location of the catalog's warehouse, if it has one; for REST, `warehouse` may be a mere name."""
    named = str(catalog.properties.get("warehouse") or dict(config.properties).get("warehouse") or "")
    return (named,) if named.startswith("/") or ":/" in named else ()


def granted(config: CatalogConfig, catalog: Catalog) -> Grant:
    """Where the catalog's tables may have their files. Raises CatalogMisconfigured."""
    return grant_of(config, warehouse_of(config, catalog))


_opened = threading.local()


def open_catalog(config: CatalogConfig) -> Catalog:
    """This thread's catalog object, since its session must not be shared; reopened when the configuration changed.
    Raises CatalogUnavailable."""
    kind = kind_of(config)
    properties = {key: value for key, value in resolved(config).items() if not key.startswith(_OURS)}
    key = (config.name, tuple(sorted(properties.items())))
    cache: dict[Any, Catalog] = _opened.__dict__.setdefault("catalogs", {})
    if key not in cache:
        with catalog_errors(config):
            opened = _make(config.name, kind, properties)
        if len(cache) >= _CACHED_PER_THREAD:
            close_catalogs()
        cache[key] = opened
    return cache[key]


def close_catalogs() -> None:
    """Close this thread's catalogs; they are opened again when needed."""
    cache: dict[Any, Catalog] = _opened.__dict__.setdefault("catalogs", {})
    while cache:
        cache.popitem()[1].close()


def _make(name: str, kind: str, properties: dict[str, str]) -> Catalog:
    if kind in _DIRECTORIES or kind == INTERNAL:
        if not properties.get("warehouse"):
            raise CatalogMisconfigured(
                f"catalog {name}: warehouse is missing", hint="Name the directory: warehouse=file:///absolute/path"
            )
        return (InternalCatalog if kind == INTERNAL else DirectoryCatalog)(name, **properties)
    try:
        make = AVAILABLE_CATALOGS[CatalogType(kind)]
    except ValueError as error:
        meant = difflib.get_close_matches(kind, (catalog_type.value for catalog_type in CatalogType), n=1)
        raise CatalogMisconfigured(
            f"catalog {name}: {_NO_COMMITS.get(kind, f'the kind {kind} is not known')}",
            hint=f"Did you mean type={meant[0]}?" if meant else _KINDS,
        ) from error
    if kind in ("sql", "rest", "hive") and "uri" not in properties:
        raise CatalogMisconfigured(f"catalog {name}: uri is missing", hint=_URIS[kind])
    if kind == "sql":
        properties = {**_for_existing_database(name, properties["uri"]), **properties}
    limit_driver(kind)
    settings = {key: _NO_TEXTS[key](value) if key in _NO_TEXTS else value for key, value in properties.items()}
    if kind == "rest":
        from amoro_core.iceberg.catalog.rest import GuardedRestCatalog

        return GuardedRestCatalog(name, **settings)
    # pyiceberg's load_catalog would merge its own configuration of that name, even from the current directory.
    catalog = make(name, settings)
    if kind == "hive":
        _refuse_mixed_tables(catalog)
    return catalog


def _refuse_mixed_tables(hive: Any) -> None:
    """Let the catalog detect tables of Amoro's Mixed-Hive format, which only the metastore's parameters mark."""
    convert = hive._convert_hive_into_iceberg

    def converting(table: Any) -> Table:
        refuse_mixed_hive(table.parameters or {})
        converted: Table = convert(table)
        return converted

    hive._convert_hive_into_iceberg = converting


def _for_existing_database(name: str, uri: str) -> dict[str, str]:
    """Settings that keep a missing database from being created as an empty catalog."""
    file = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]*)(?:\?.*)?", uri)
    if uri.startswith("sqlite") and (file is None or file[1] in ("", ":memory:") or file[1].startswith("file:")):
        return {}
    if file is not None and not Path(file[1]).is_file():
        raise CatalogUnavailable(
            f"catalog {name}: the database {file[1]} does not exist",
            hint="Name the file by its absolute path: uri=sqlite:////absolute/path.db",
        )
    return {"init_catalog_tables": "false"}


def load_table(config: CatalogConfig, identifier: TableIdentifier) -> Table:
    """The table's present state; its FileIO is confined to where the table's files may lie.

    Raises TableNotFound only when the catalog said that it does not exist, TableRefused for what is not an Iceberg
    table and for unsupported or misplaced metadata, DataFileMissing (the metadata file), CatalogUnavailable.
    """
    catalog = open_catalog(config)
    grant = granted(config, catalog)
    with confined_to(grant), catalog_errors(config, identifier), refusing_lost_keys(catalog):
        table = catalog.load_table(identifier.in_catalog)
    if (etag := getattr(catalog, "etag", None)) is not None:  # of REST catalogs
        _etags.keep(config, identifier, etag, table.metadata_location or "")
    table.io = ConfinedFileIO(
        table.io.inner if isinstance(table.io, ConfinedFileIO) else table.io,
        read_locations(table.metadata, grant),
        write_locations(table.metadata, grant),
        way_out=grant.way_out,
    )
    return table


def is_unchanged(config: CatalogConfig, identifier: TableIdentifier, metadata_location: str) -> bool:
    """Whether a REST catalog says that the table still has that metadata; False when it can't. Raises
    CatalogUnavailable."""
    etag = _etags.find(config, identifier, metadata_location)
    if not etag:
        return False
    catalog: Any = open_catalog(config)
    with catalog_errors(config):
        return bool(catalog.is_current(identifier, etag))


@contextmanager
def catalog_errors(config: CatalogConfig, identifier: TableIdentifier | None = None) -> Iterator[None]:
    """Translate whatever a catalog raises into our errors; messages never contain secrets of the configuration."""
    try:
        yield
    except AmoroError:
        raise
    except Exception as error:
        raise _translated(error, config, identifier) from error


def _translated(error: Exception, config: CatalogConfig, identifier: TableIdentifier | None) -> AmoroError:
    match error:
        case NoSuchIcebergTableError() | NoSuchPropertyException() if identifier is not None:
            return TableRefused(
                f"{identifier} is not an Iceberg table: {_masked(error, config)}",
                reason="format",
                hint="Tables of other formats can't be optimized.",
            )
        case NoSuchTableError() | NoSuchNamespaceError() if identifier is not None and _is_of_catalog(error):
            return TableNotFound(
                f"table {identifier} does not exist",
                hint=f"See: amoro table list --catalog {config.name}",
                table=identifier,
            )
        case FileNotFoundError() if identifier is not None:
            return DataFileMissing(
                f"the metadata file of {identifier} does not exist: {_masked(error, config)}",
                hint="Restore the file, or register the table with its newest metadata file.",
            )
        case NotInstalledError() | ImportError():
            return CatalogUnavailable(
                f"catalog {config.name}: {_masked(error, config)}",
                hint=f"pip install 'pyiceberg[{_missing_extra(error)}]'",
            )
        case ValidationError() | pydantic.ValidationError() | UnicodeDecodeError() if identifier is not None:
            return _unreadable_metadata(error, config, identifier)
        case _ if is_without_rights(error):
            return AccessDenied(
                f"{_named(config)} or its storage denies access: {_masked(error, config)}",
                hint=f"Check the service's permissions and the catalog's credentials: amoro catalog show {config.name}",
            )
        case _:
            return CatalogUnavailable(
                f"{_named(config)} does not answer as it should: {_masked(error, config)}",
                hint=f"Check its settings and that it runs: amoro catalog show {config.name}, amoro doctor",
            )


def _is_of_catalog(error: Exception) -> bool:
    """Whether a 404 is the catalog's own; proxies and wrong addresses answer without Iceberg's error body."""
    if answered_with(error.__cause__) is None:
        return True
    return not str(error).startswith("RESTError ") and ": RestError: " not in str(error)


def _unreadable_metadata(error: Exception, config: CatalogConfig, identifier: TableIdentifier) -> AmoroError:
    if version := re.search(r"Input tag '(\d+)'|Unknown format version: (\d+)", str(error)):
        return format_version_refused(version[1] or version[2])
    text, file = _masked(error, config), last_input()
    if "Invalid JSON" in str(error) or isinstance(error, UnicodeDecodeError):
        if file:
            return CatalogUnavailable(
                f"the metadata file {file} of {identifier} can't be read: {text}",
                hint="Restore the file, or register the table with its newest metadata file that is whole.",
            )
        return CatalogUnavailable(
            f"{_named(config)} gives no metadata of {identifier}: {text}",
            hint=f"Check that its URI is that of the catalog itself: amoro catalog show {config.name}",
        )
    subject = f"the metadata file {file} of {identifier}" if file else f"what {_named(config)} says of {identifier}"
    return TableRefused(f"{subject} can't be read: {text}", reason="metadata")


def _named(config: CatalogConfig) -> str:
    """The catalog with its address, if it has one."""
    uri = without_secrets(dict(config.properties).get("uri", ""))
    return f"catalog {config.name} ({uri})" if uri else f"catalog {config.name}"


def _missing_extra(error: Exception) -> str:
    if match := re.search(r"pyiceberg\[([\w-]+)\]", str(error)):
        return match[1]
    name = (error.name or "") if isinstance(error, ImportError) else ""
    return _EXTRAS.get(name.split(".")[0], name)


def _masked(error: Exception, config: CatalogConfig) -> str:
    text = without_secrets(error_text(error))
    for key, value in config.properties:
        if is_secret(key):
            with suppress(CatalogUnavailable):
                text = text.replace(_resolve(config.name, key, value) or MASK, MASK)
    return text


#: A name of a table in its catalog.
Name = tuple[str, ...]
#: Tables that a Hive metastore is asked for at once.
_OF_HIVE = 300


def locations(config: CatalogConfig, names: Collection[Name]) -> Mapping[Name, str] | None:
    """The metadata locations of these Iceberg tables, or of more; None if catalogs of that kind can only be asked table
    by table. Raises CatalogUnavailable."""
    find = {"sql": _of_sql, "hive": _of_hive, "glue": _of_glue, INTERNAL: _of_internal}.get(kind_of(config))
    if find is None:
        return None
    catalog = open_catalog(config)
    with catalog_errors(config):
        return {name: place for name, place in find(catalog, names) if place}


def _of_sql(catalog: Any, names: Collection[Name]) -> Iterator[tuple[Name, str]]:
    """All rows of the catalog, views included, in one query."""
    from pyiceberg.catalog.sql import IcebergTables  # SQLAlchemy takes 0.3 s of a start
    from sqlalchemy import select

    rows: Any = IcebergTables.__table__
    query = select(rows.c.table_namespace, rows.c.table_name, rows.c.metadata_location)
    with catalog.engine.connect() as connection:
        for space, table, place in connection.execute(query.where(rows.c.catalog_name == catalog.name)):
            yield (*Catalog.identifier_to_tuple(space), table), place


def _of_internal(catalog: Any, names: Collection[Name]) -> Iterator[tuple[Name, str]]:
    yield from catalog.pointers()


def _of_hive(catalog: Any, names: Collection[Name]) -> Iterator[tuple[Name, str]]:
    for name, table in hive_tables(catalog, names):
        yield name, (table.parameters or {}).get(METADATA_LOCATION, "")


def hive_tables(catalog: Any, names: Collection[Name]) -> Iterator[tuple[Name, Any]]:
    """Those of these tables that a Hive metastore has, of any format, as it describes them."""
    with catalog._client as client:
        for space, tables in _by_namespace(names).items():
            for start in range(0, len(tables), _OF_HIVE):
                for table in client.get_table_objects_by_name(dbname=space, tbl_names=tables[start : start + _OF_HIVE]):
                    yield (space, table.tableName), table


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
    result: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        if len(name) == 2:
            result[name[0]].append(name[1])
    return result


def other_names(config: CatalogConfig) -> tuple[str, ...]:
    """The catalog names that own tables in a SQL catalog's database in which this one has none. Raises
    CatalogUnavailable."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select

    catalog: Any = open_catalog(config)
    name: Any = IcebergTables.__table__.c.catalog_name
    with catalog_errors(config), catalog.engine.connect() as connection:
        names = list(connection.execute(select(name).distinct().order_by(name)).scalars())
    return () if config.name in names else tuple(names)
