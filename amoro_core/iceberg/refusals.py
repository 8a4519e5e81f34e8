"""What an error of sending a commit proves: that the catalog refused it, that it never arrived, or nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    UnauthorizedError,
)

from amoro_core.errors import AccessDenied, CatalogUnavailable, StorageFull, TableRefused
from amoro_core.files.io import is_denied, is_full
from amoro_core.iceberg.saying import said

#: Statuses by which a REST catalog states that it applied nothing; any other may hide a commit that landed.
_REFUSING_STATUSES = frozenset({400, 401, 403, 404, 422, 429})
#: Error codes of AWS's services.
_DENYING_CODES = frozenset(
    {"AccessDenied", "AccessDeniedException", "ExpiredTokenException", "UnrecognizedClientException"}
)
#: A database that can't be written, or not by us: SQLite's primary codes, PostgreSQL's SQLSTATEs.
_READ_ONLY = frozenset({8, 3, 23})  # SQLITE_READONLY, SQLITE_PERM, SQLITE_AUTH
_READ_ONLY_STATES = frozenset({"25006", "42501"})
#: A database locked by others. SQLite may report it at COMMIT too, which then has done nothing.
_LOCKED = frozenset({5, 6})  # SQLITE_BUSY, SQLITE_LOCKED
_LOCKED_STATES = frozenset({"40001", "40P01", "55P03"})


def is_without_rights(error: Exception) -> bool:
    """Whether the catalog or the storage denied access."""
    if isinstance(error, ForbiddenError | UnauthorizedError):
        return True
    if isinstance(error, OSError) and is_denied(error):
        return True
    # botocore's error; its module is loaded for Glue catalogs only.
    answer = getattr(error, "response", None)
    return isinstance(answer, dict) and answer.get("Error", {}).get("Code") in _DENYING_CODES


def answered_with(error: BaseException | None) -> int | None:
    """The status of an HTTP client's error, 0 where nothing was answered; None for any other error."""
    # Loaded for REST catalogs only: no other catalog raises its errors.
    client = sys.modules.get("requests")
    if client is None or not isinstance(error, client.HTTPError):
        return None
    return 0 if error.response is None else int(error.response.status_code)


def is_refusal(error: Exception) -> bool:
    """Whether the catalog refused, and applied nothing."""
    # TableRefused: the metadata file, which the client writes before it commits, may not be written there.
    if isinstance(error, NoSuchTableError | NoSuchNamespaceError | TableRefused):
        return True
    if isinstance(error, RESTError) and (status := answered_with(error.__cause__)) is not None:
        return status in _REFUSING_STATUSES
    if not isinstance(error, OSError) and is_without_rights(error):
        return True
    if _is_before_commit(error) and (_sqlite_code(error) in _READ_ONLY or _state(error) in _READ_ONLY_STATES):
        return True
    # Exactly this class, raised by the client's own checks: errors of decoding an answer are its subclasses.
    return type(error) is ValueError and error.__cause__ is None and error.__context__ is None


def is_lock(error: Exception) -> bool:
    """Whether others held the catalog's database, so that nothing was applied this time."""
    return _sqlite_code(error) in _LOCKED or (_is_before_commit(error) and _state(error) in _LOCKED_STATES)


def _is_before_commit(error: Exception) -> bool:
    """Whether SQLAlchemy reports a statement, not COMMIT or connecting: the transaction is then rolled back."""
    return getattr(error, "statement", None) is not None


def _sqlite_code(error: Exception) -> int | None:
    """The primary code of the driver's error within SQLAlchemy's, whose module is loaded for SQL catalogs only."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None  # the higher bytes are the extended code


def _state(error: Exception) -> str | None:
    """PostgreSQL's SQLSTATE, as psycopg 2 and 3 have it."""
    driver = getattr(error, "orig", None)
    return getattr(driver, "pgcode", None) or getattr(driver, "sqlstate", None)


@contextmanager
def metadata_watched(catalog: Catalog) -> Iterator[Callable[[Exception], bool]]:
    """Yields a predicate: whether an error of the block is known to precede any request to change the catalog.

    Clients of metastores (SQL, Hive, Glue) load the table and write its new metadata file themselves, and only then
    send that file's location to the metastore: an error raised by one of these steps has changed nothing. For any other
    error, and for other catalogs, nothing is known: False.
    """
    failed: list[BaseException] = []
    written: list[bool] = []

    def watched(step: Callable[..., Any], *, writes: bool) -> Callable[..., Any]:
        def stepping(*arguments: Any, **named: Any) -> Any:
            try:
                done = step(*arguments, **named)
            except BaseException as error:
                if not written:
                    failed.append(error)
                raise
            if writes:
                written.append(True)
            return done

        return stepping

    own = vars(catalog)
    names = [name for name in _STEPS if isinstance(catalog, MetastoreCatalog) and hasattr(catalog, name)]
    before = {name: own[name] for name in names if name in own}
    for name in names:
        own[name] = watched(getattr(catalog, name), writes=name != "load_table")
    try:
        yield lambda error: any(one in failed for one in _causes(error))
    finally:
        for name in names:
            del own[name]
        own.update(before)


#: The steps of a metastore's client before it requests a change. Glue has a second way to write, for S3 tables.
_STEPS = ("load_table", "_write_metadata", "_write_metadata_no_exist_check")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__


def let_go(catalog: Catalog, error: Exception) -> None:
    """Close the connections of a SQL catalog whose database failed, which rolls back what they did not commit.

    After a failed COMMIT, SQLAlchemy keeps the transaction open: the next use of the connection would see our commit as
    if it had landed, and others would find the database locked.
    """
    engine = getattr(catalog, "engine", None)
    # A database in memory lives in its connection, and nobody else can lock it.
    if engine is not None and hasattr(error, "orig") and engine.url.database not in (None, "", ":memory:"):
        engine.dispose()


def unapplied(error: Exception) -> CatalogUnavailable | StorageFull:
    """Our error for one by which nothing was applied: AccessDenied, StorageFull, else CatalogUnavailable."""
    told = f"the commit could not be made: {said(error)}"
    if isinstance(error, CatalogUnavailable | StorageFull):
        return error
    if is_without_rights(error):
        return AccessDenied(told)
    if isinstance(error, OSError) and is_full(error):
        return StorageFull(told)
    return CatalogUnavailable(told, hint="Nothing was applied. It is retried automatically.")
