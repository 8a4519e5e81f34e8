"""Guards around pyiceberg: it imports no class that a property names, and opens no file outside of what is granted.

Those of REST catalogs are in `amoro_core.iceberg.rest`."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pyiceberg import io as pyiceberg_io
from pyiceberg.io import FileIO, InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import locations as pyiceberg_locations
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from amoro_core.errors import TableRefused
from amoro_core.files.confining import ConfinedFileIO
from amoro_core.iceberg.format3 import write_format_3
from amoro_core.iceberg.kept_keys import refusing_lost_keys
from amoro_core.iceberg.raw_metadata import refuse_lost, refuse_unmodelled
from amoro_core.model.grants import Grant

_FILE_IOS = frozenset({pyiceberg_io.ARROW_FILE_IO, pyiceberg_io.FSSPEC_FILE_IO})
LOCATION_PROVIDERS = frozenset(
    f"pyiceberg.table.locations.{name}" for name in ("SimpleLocationProvider", "ObjectStoreLocationProvider")
)
_allowed: frozenset[str] = frozenset()
_installed = False


def allow_classes(names: Iterable[str]) -> None:
    """Also allow these classes to be imported as a FileIO or an auth manager, in the whole process.

    They are used for catalogs and metadata. Data files are always read and written by pyarrow, and named by us.
    """
    global _allowed
    _allowed = frozenset(names)


def install_guards() -> None:
    """Replace pyiceberg's importing functions and its refusal to write format 3 by ours.

    For the whole process; once is enough.
    """
    global _installed
    if _installed:
        return
    _installed = True
    import_file_io = only(_FILE_IOS, pyiceberg_io._import_file_io, "FileIO", allowable=True)
    pyiceberg_io._import_file_io = lambda io_impl, properties: _confined(import_file_io(io_impl, properties))
    infer = pyiceberg_io._infer_file_io_from_scheme
    # If nothing is inferred, pyiceberg uses its own without calling us.
    pyiceberg_io._infer_file_io_from_scheme = lambda path, properties: (
        infer(path, properties) or _confined(PyArrowFileIO(properties))
    )
    pyiceberg_locations._import_location_provider = only(
        LOCATION_PROVIDERS, pyiceberg_locations._import_location_provider, "location provider"
    )
    parse = refusing_lost_keys(_refusing(TableMetadataUtil.parse_raw))
    TableMetadataUtil.parse_raw = staticmethod(parse)  # type: ignore[assignment]
    write_format_3()


def _refusing(parse: Callable[[str], TableMetadata]) -> Callable[[str], TableMetadata]:
    """Refuse by name what the model of a metadata file would lose, and what it can't be made of."""

    def guarded(data: str) -> TableMetadata:
        refuse_lost(data)
        try:
            return parse(data)
        except Exception:  # whatever pyiceberg and pydantic raise
            refuse_unmodelled(data)
            raise

    return guarded


_grant: ContextVar[Grant | None] = ContextVar("grant", default=None)
_last_input: ContextVar[str] = ContextVar("last_input", default="")


@contextmanager
def confined_to(grant: Grant) -> Iterator[None]:
    """Confine every FileIO that pyiceberg opens within the block to the grant.

    By itself it reads and writes metadata files only. In an object store these may lie anywhere unless the grant is
    strict: the catalog decides where.
    """
    token, opened = _grant.set(grant), _last_input.set("")
    try:
        yield
    finally:
        _grant.reset(token)
        _last_input.reset(opened)


def last_input() -> str:
    """The last file opened for reading within `confined_to`; "" without one."""
    return _last_input.get()


class _NamingFileIO(ConfinedFileIO):
    """Remembers what it opened, so that an unreadable file can be named: pyiceberg's errors don't."""

    def new_input(self, location: str) -> InputFile:
        _last_input.set(location)
        return super().new_input(location)


def _confined(made: FileIO | None) -> FileIO | None:
    grant = _grant.get()
    if made is None or grant is None:
        return made
    return _NamingFileIO(made, grant.prefixes, grant.prefixes, remote=not grant.strict, way_out=grant.way_out)


def confined(made: FileIO) -> FileIO:
    """The FileIO, confined if called within `confined_to`."""
    return _confined(made) or made


def only(names: frozenset[str], load: Callable[..., Any], what: str, *, allowable: bool = False) -> Callable[..., Any]:
    """The loading function restricted to these names: a table's properties or a server's answer must not run code.

    With `allowable`, also for the names given to `allow_classes`.
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
