"""Errors of catalogs and of their libraries, translated to ours."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pydantic
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    UnauthorizedError,
)

from amoro_core.errors import AccessDenied, CatalogUnavailable, StorageFull, TableRefused
from amoro_core.files.storage.io import is_denied, is_full
from amoro_core.model.text_sanitizing import briefly

_FOUND = 80  # characters quoted of what was found
_REST = re.compile(r"RESTError (\d+): Received unexpected JSON Payload: (.*?)(?:, errors: [^\n]*)?", re.DOTALL)
_BEGINS = "{[\"'"  # how JSON begins
#: Errors whose message is clear without their class name.
_SPEAK_FOR_THEMSELVES = (ValueError, NotInstalledError, NoSuchIcebergTableError, NoSuchPropertyException)
#: What urllib3 puts before a reason: the repr of an object, and errno.
_AROUND = re.compile(r"^(?:<[^>]*>|\w+\(host=[^)]*\)): |\[Errno -?\d+\] ")


def error_text(error: Exception) -> str:
    """The error in one line of a few hundred characters, to follow a colon."""
    # pyiceberg's error has it as its cause.
    within = error if isinstance(error, pydantic.ValidationError) else error.__cause__
    if isinstance(within, pydantic.ValidationError):
        return _of_pydantic(within)
    if isinstance(error, UnicodeDecodeError):
        return f"expected UTF-8, found byte 0x{error.object[error.start]:02x} at {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return _no_json(error.doc, error.msg)
    driver = getattr(error, "orig", None)  # SQLAlchemy's, without the statement around it
    if isinstance(driver, Exception):
        return briefly(f"the database says: {driver}")
    if rest := _REST.fullmatch(str(error)):
        return f"expected JSON, found {_quoted(rest[2])} with status {rest[1]}"
    reason = getattr(error.args[0] if error.args else None, "reason", None)  # requests', of urllib3
    if isinstance(reason, Exception):
        return f"no connection: {briefly(_unwrapped(str(reason)))}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    lines = [line for line in str(error).splitlines() if line.strip()]
    kind = "" if lines and type(error) in _SPEAK_FOR_THEMSELVES else type(error).__name__
    return briefly(": ".join(filter(None, (kind, *lines[:1]))))


def _of_pydantic(error: pydantic.ValidationError) -> str:
    """The first problem, and how many more there are."""
    first, *more = error.errors(include_url=False)
    value = first["input"]
    if first["type"] == "json_invalid":
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        return _no_json(text, str(first.get("ctx", {}).get("error", "")))
    # A number is the format version by which the kind of metadata was chosen.
    place = ".".join(str(part) for part in first["loc"] if part not in (1, 2, 3, "1", "2", "3"))
    at = f" at {place}" if place else ""
    rest = f" (and {len(more)} more)" if more else ""
    if first["type"] == "missing":
        return f"expected the field {place}, found none{rest}"
    message = briefly(first["msg"])
    if message.startswith("Input should be "):
        return f"expected {message.removeprefix('Input should be ')}{at}, found {_quoted(value)}{rest}"
    return f"{message}{at}{rest}"


def _no_json(text: str, why: str) -> str:
    start = text.strip()
    if not start:
        return "expected JSON, found nothing"
    if start[0] not in _BEGINS:
        return f"expected JSON, found {_quoted(start)}"
    return f"expected JSON, found it broken: {briefly(why)}"


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f"'{briefly(text, _FOUND)}'"


def _unwrapped(text: str) -> str:
    while (shorter := _AROUND.sub("", text)) != text:
        text = shorter
    return text


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
        yield lambda error: _is_caused_by(error, failed)
    finally:
        for name in names:
            del own[name]
        own.update(before)


#: The steps of a metastore's client before it requests a change. Glue has a second way to write, for S3 tables.
_STEPS = ("load_table", "_write_metadata", "_write_metadata_no_exist_check")


def _is_caused_by(error: BaseException | None, causes: list[BaseException]) -> bool:
    """Whether the error, or one of its causes, is among these."""
    return error is not None and (error in causes or _is_caused_by(error.__cause__, causes))


def close_connections(catalog: Catalog, error: Exception) -> None:
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
    message = f"the commit could not be made: {error_text(error)}"
    if isinstance(error, CatalogUnavailable | StorageFull):
        return error
    if is_without_rights(error):
        return AccessDenied(message)
    if isinstance(error, OSError) and is_full(error):
        return StorageFull(message)
    return CatalogUnavailable(message, hint="Nothing was applied. It is retried automatically.")
