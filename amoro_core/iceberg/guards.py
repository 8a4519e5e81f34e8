"""What pyiceberg is kept from: importing classes that a property names, and waiting for a REST server for ever."""

from collections.abc import Callable, Iterable
from typing import Any

from pyiceberg import io as pyiceberg_io
from pyiceberg.catalog import rest as pyiceberg_rest
from pyiceberg.catalog.rest.auth import AuthManagerFactory
from pyiceberg.exceptions import UnauthorizedError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table import locations as pyiceberg_locations
from pyiceberg.table.update import TableRequirement, TableUpdate
from requests import PreparedRequest, Response, Session
from tenacity import retry_if_exception_type

from amoro_core.errors import TableRefused

#: For connecting, and for each wait for bytes.
REST_TIMEOUT_SECONDS = (10.0, 120.0)

_FILE_IOS = frozenset({pyiceberg_io.ARROW_FILE_IO, pyiceberg_io.FSSPEC_FILE_IO})
LOCATION_PROVIDERS = frozenset(
    f"pyiceberg.table.locations.{name}" for name in ("SimpleLocationProvider", "ObjectStoreLocationProvider")
)
_AUTH_MANAGERS = frozenset(("noop", "basic", "legacyoauth2", "oauth2", "google", "entra"))
_allowed: frozenset[str] = frozenset()


def allow_classes(names: Iterable[str]) -> None:
    """Let these classes be imported as a FileIO or an auth manager, too, and no others, in the whole process.

    They serve catalogs and metadata. Data files are read and written by pyarrow, and named by ourselves, whatever a
    property says.
    """
    global _allowed
    _allowed = frozenset(names)


def install_guards() -> None:
    """Bind pyiceberg's importing functions and its REST session to ours, for the whole process; once is enough."""
    if vars(pyiceberg_rest)["Session"] is _TimedSession:
        return
    pyiceberg_io._import_file_io = _only(_FILE_IOS, pyiceberg_io._import_file_io, "FileIO", allowable=True)
    pyiceberg_locations._import_location_provider = _only(
        LOCATION_PROVIDERS, pyiceberg_locations._import_location_provider, "location provider"
    )
    create = _only(_AUTH_MANAGERS, AuthManagerFactory.create, "auth manager", allowable=True)
    AuthManagerFactory.create = create  # type: ignore[method-assign]
    vars(pyiceberg_rest)["Session"] = _TimedSession


def _only(names: frozenset[str], load: Callable[..., Any], what: str, *, allowable: bool = False) -> Callable[..., Any]:
    """The loading function, for these names only: a table's properties or a server's answer must not run code.

    With `allowable` for those of `allow_classes`, too.
    """
    way_out = "; an administrator may name it under allowed-classes in amoro.yaml" if allowable else ""

    def guarded(name: str, *arguments: Any) -> Any:
        if name not in names and not (allowable and name in _allowed):
            raise TableRefused(
                f"{what} {name} is not one of pyiceberg's own and is not imported",
                reason="foreign-code",
                hint=f"Allowed are: {', '.join(sorted(names))}{way_out}.",
            )
        return load(name, *arguments)

    return guarded


class _TimedSession(Session):
    """A session whose requests end; a request's own timeout wins."""

    def send(self, request: PreparedRequest, **kwargs: Any) -> Response:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = REST_TIMEOUT_SECONDS
        return super().send(request, **kwargs)


#: pyiceberg sends a commit again by itself, with a new token, after a 401 and a 419. That is left to it only after a
#: 401, which says that nothing was applied: after a 419 the answer to the second sending would hide that the first may
#: still be.
_send_again_after_401 = pyiceberg_rest.RestCatalog.commit_table.retry_with(
    retry=retry_if_exception_type(UnauthorizedError)
)


class GuardedRestCatalog(pyiceberg_rest.RestCatalog):
    """A REST catalog whose session does not keep a table's own token for the next table, and which sends a commit again
    only where the first sending is known to be without effect."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        own = self._session.headers.get("Authorization")
        try:
            done: CommitTableResponse = _send_again_after_401(self, table, requirements, updates)
            return done
        finally:
            if own is None:
                self._session.headers.pop("Authorization", None)
            else:
                self._session.headers["Authorization"] = own
