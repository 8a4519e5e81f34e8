"""Tables of all catalogs and formats by name, facts about their files, and properties of their storage."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib import import_module
from threading import Lock

from amoro_core.errors import (
    AmoroError,
    CatalogMisconfigured,
    CatalogUnavailable,
    DataFileMissing,
    TableNotFound,
    TableRefused,
    UnreadableFile,
)
from amoro_core.files.deletes.delete_files import read_positions
from amoro_core.files.deletes.row_matcher import RowPosition, RowsMissing, look_up
from amoro_core.files.deletes.vectors import read_omitted_rows, read_vectors
from amoro_core.formats.ports import Locating, OpenTable, Revalidating, Rewritable, TableFormat
from amoro_core.logger import get_logger
from amoro_core.model.commits import FileFacts, Group, Head, PlanRecord
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity
from amoro_core.model.optimizing_config import effective_properties
from amoro_core.model.paths import normalise
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.tables import ICEBERG, TABLE_FORMATS, TableIdentifier, TableRuntime
from amoro_core.model.task_payload import PROCEDURES
from amoro_core.validation.view import (
    Positions,
    Read,
    RowLookup,
    ValidationView,
    build_view,
    every_input,
    to_look_up,
    to_read,
)

_UNREADABLE = (DataFileMissing, UnreadableFile, TableRefused)

#: Larger delete files are not read to learn what they name: a position takes eight bytes of memory.
MAX_NAMING_BYTES = 64 * 1024 * 1024
MAX_NAMING_ROWS = 5_000_000


class FileReadCache:
    """Facts about files, read once for all attempts of a commit: files are immutable. Failures are not cached."""

    def __init__(self) -> None:
        self._facts: dict[str, FileFacts] = {}
        self._positions: dict[DeleteIdentity, tuple[frozenset[str], Positions]] = {}  # with the files read for
        self._left_out: dict[int, Mapping[int, PositionSet]] = {}
        self._places: dict[int, dict[RowPosition, RowPosition | None]] = {}  # by task; None: the row is in no output

    def facts(self, table: Rewritable, path: str) -> FileFacts:
        """Like the table's `file_facts`."""
        if path not in self._facts:
            self._facts[path] = table.file_facts(path)
        return self._facts[path]

    def view_of(self, table: Rewritable, record: PlanRecord, head: Head) -> ValidationView:
        """The head relative to the plan, with the reads that `to_read` names, without large and unreadable files."""
        view = build_view(record, head)
        deletes, groups = to_read(view)
        inputs = (given.data for group in record.groups for given in every_input(group))
        positions = self.positions(table, deletes, inputs)
        left_out: dict[int, Mapping[int, PositionSet]] = {}
        for group in groups:
            if group.number not in self._left_out:
                with suppress(*_UNREADABLE):
                    self._left_out[group.number] = _omitted_rows(table, group)
            if group.number in self._left_out:
                left_out[group.number] = self._left_out[group.number]
        view = replace(view, read=Read(positions, left_out))
        looked_up = {group.number: self._look_up(table, group, rows) for group, rows in to_look_up(view)}
        return replace(view, read=Read(positions, left_out, looked_up))

    def _look_up(self, table: Rewritable, group: Group, wanted: Mapping[int, PositionSet]) -> RowLookup:
        """Where these rows of the inputs are in the outputs; each row is looked up once."""
        if group.look_up is None:
            raise ValueError(f"the rows of task {group.number} are not looked up")
        if (count := sum(len(positions) for positions in wanted.values())) > group.look_up.most_rows:
            return RowLookup(problem=f"they are {count}, and at most {group.look_up.most_rows} are looked up")
        stored = self._places.setdefault(group.number, {})
        places = [(at, position) for at, positions in wanted.items() for position in positions.ascending().tolist()]
        missing = _by_file(place for place in places if place not in stored)
        used = _by_file(place for place in stored.values() if place is not None)
        outputs, keys = group.output.data_files, group.look_up.keys
        try:
            answers = look_up(table.access(), group.work, outputs, keys, missing, used)
        except RowsMissing as error:
            return RowLookup(problem=str(error))
        except _UNREADABLE as error:
            return RowLookup(problem=error.message)
        stored.update({place: answers.get(place) for place in places if place not in stored})
        return RowLookup(_by_file(there for place in places if (there := stored[place]) is not None))

    def positions(
        self, table: Rewritable, deletes: Iterable[DeleteFile], files: Iterable[DataFile]
    ) -> dict[DeleteIdentity, Positions]:
        """The positions that each position delete deletes of these files, without large and unreadable deletes."""
        rows = {normalise(file.path): file.record_count for file in files}
        result: dict[DeleteIdentity, Positions] = {}
        for delete in deletes:
            paths, positions = self._positions.get(delete.identity, (None, {}))
            is_small = delete.size_bytes <= MAX_NAMING_BYTES and delete.record_count <= MAX_NAMING_ROWS
            if (paths is None or not rows.keys() <= paths) and is_small:
                # Groups that are committed one after the other have different files.
                with suppress(*_UNREADABLE):
                    paths, positions = frozenset(rows), _positions(table, delete, rows)
                    self._positions[delete.identity] = paths, positions
            if paths is not None and rows.keys() <= paths:
                result[delete.identity] = positions
        return result


def _positions(table: Rewritable, delete: DeleteFile, rows: Mapping[str, int]) -> Positions:
    """What it deletes in the data files at these normalised paths, of which `rows` has the numbers of rows."""
    if delete.is_vector:
        vectors = read_vectors(table.access(), [delete], rows, lambda: None)
        return {normalise(delete.named_file or ""): vectors[delete.identity]}
    # A position behind the end, which this leaves out, would stand for a row of another file in the outputs.
    return read_positions(table.access(), delete, lambda: None, rows)


def _omitted_rows(table: Rewritable, group: Group) -> Mapping[int, PositionSet]:
    if group.output.position_map is None:
        raise ValueError(f"task {group.number} does not tell which rows it left out")
    rows = [given.data.record_count for given in group.work.rewritten]
    return read_omitted_rows(table.access(), group.output.position_map, rows)


def _by_file(places: Iterable[RowPosition]) -> dict[int, PositionSet]:
    by_file: dict[int, list[int]] = {}
    for at, position in places:
        by_file.setdefault(at, []).append(position)
    return {at: PositionSet.of(positions) for at, positions in sorted(by_file.items())}


class Formats:
    """The installed formats. A catalog has those in its property `table-formats`; without it, the one that is its type,
    or Iceberg."""

    def __init__(self, formats: Iterable[TableFormat]) -> None:
        self._known: dict[str, TableFormat] = {format.name: format for format in formats}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._known, *PROCEDURES)))

    def check(self, catalog: CatalogConfig) -> None:
        """Raise CatalogUnavailable when the catalog does not work as configured for any of its formats."""
        for format in self._of(catalog):
            format.check(catalog)

    def commits_refused(self, catalog: CatalogConfig) -> str | None:
        """Why the catalog can't commit in any format; None when it can."""
        refusals = [format.commits_refused(catalog) for format in self._of(catalog)]
        return None if None in refusals else refusals[0]

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        """The tables of the catalog that its filters admit, in order of their names. Raises CatalogUnavailable."""
        return sorted({table for format in self._of(catalog) for table in format.list_tables(catalog)})

    def locations(
        self, catalog: CatalogConfig, names: Collection[tuple[str, ...]]
    ) -> Mapping[str, Mapping[tuple[str, ...], str]] | None:
        """Where the metadata of those tables are, by format and name in the catalog; None: asked table by table."""
        locating = (item for item in self._of(catalog) if isinstance(item, Locating))
        answers = ((item.name, item.locations(catalog, names)) for item in locating)
        return {name: places for name, places in answers if places is not None} or None

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier, first: str = "") -> OpenTable:
        """The table, in the first format that knows it; `first` is tried before the others.

        Raises TableNotFound only when every format of the catalog said that the table does not exist, and
        TableRefused("format") when it exists in none of them.
        """
        foreign: TableRefused | None = None
        missing: TableNotFound | None = None
        for format in sorted(self._of(catalog), key=lambda format: format.name != first):
            try:
                return format.load(catalog, identifier)
            except TableRefused as error:
                if error.reason != "format":
                    raise
                foreign = foreign or error
            except TableNotFound as error:
                missing = missing or error
        raise foreign or missing or _misconfigured(catalog, "names no format")

    def find(self, catalog: CatalogConfig, name: str) -> TableFormat | None:
        """The catalog's format of that name; None if it has none. Raises CatalogMisconfigured."""
        return next((format for format in self._of(catalog) if format.name == name), None)

    def _of(self, catalog: CatalogConfig) -> list[TableFormat]:
        """The catalog's formats, in its order. Raises CatalogMisconfigured for one that is not installed."""
        properties = dict(catalog.properties)
        kind = properties.get("type", "").strip().lower()
        listed = properties.get(TABLE_FORMATS, kind if kind in PROCEDURES else ICEBERG)
        names = list(dict.fromkeys(name for part in listed.split(",") if (name := part.strip().lower())))
        if not names:
            raise _misconfigured(catalog, "names no format")
        for name in names:
            if name not in self._known and name in PROCEDURES:  # imported only when a catalog has it
                module = import_module(f"amoro_core.formats.{name}")
                self._known[name] = getattr(module, f"{name.capitalize()}Format")()
            if name not in self._known:
                raise _misconfigured(catalog, f"names {name!r}, which is not installed; known: {', '.join(self.names)}")
        return [self._known[name] for name in names]


@dataclass
class Tables:
    """Every table of every catalog, by its name alone."""

    formats: Formats
    catalog: Callable[[str], CatalogConfig]
    #: The stored state of a table, whose format is tried first.
    find_known: Callable[[TableIdentifier], TableRuntime | None] = lambda identifier: None
    #: Called after each request to a catalog, with its error if it failed.
    on_answer: Callable[[str, CatalogUnavailable | None], None] = lambda catalog, error: None

    def effective_properties(self, catalog: str, table: OpenTable) -> dict[str, str]:
        """The table's properties over those of policies and the defaults of its catalog."""
        return effective_properties(self.catalog(catalog).defaults_for(table.facts.identifier), table.facts.properties)

    def list_all(self, config: CatalogConfig) -> list[TableIdentifier]:
        """As `Formats.list_tables`."""
        with self._reporting(config.name):
            return self.formats.list_tables(config)

    def locations(
        self, config: CatalogConfig, names: Collection[tuple[str, ...]]
    ) -> Mapping[str, Mapping[tuple[str, ...], str]] | None:
        """As `Formats.locations`. Raises CatalogUnavailable."""
        with self._reporting(config.name):
            return self.formats.locations(config, names)

    def is_unchanged(self, table: TableRuntime) -> bool:
        """Whether the catalog says that a table is as it was last loaded; False when it cannot tell.

        Raises CatalogNotFound, CatalogUnavailable.
        """
        config, location = self.catalog(table.identifier.catalog), table.metadata_location
        format = self.formats.find(config, table.format)
        if not location or not isinstance(format, Revalidating):
            return False
        with self._reporting(config.name):
            return format.is_unchanged(config, table.identifier, location)

    @contextmanager
    def _reporting(self, catalog: str) -> Iterator[None]:
        try:
            yield
        except CatalogUnavailable as error:
            self.on_answer(catalog, error)
            raise
        except (TableNotFound, TableRefused):
            self.on_answer(catalog, None)
            raise
        self.on_answer(catalog, None)

    def open(self, identifier: TableIdentifier) -> OpenTable:
        """The table's present state.

        Raises CatalogNotFound, CatalogUnavailable; TableNotFound only when the catalog said that it does not exist;
        TableRefused("format") when it exists in none of the catalog's formats, and TableRefused("another-format") when
        a known table turns up in another format.
        """
        return self.load(self.catalog(identifier.catalog), identifier, self.find_known(identifier))

    def load(self, config: CatalogConfig, identifier: TableIdentifier, runtime: TableRuntime | None) -> OpenTable:
        """As `open`, of that catalog; `runtime` is the table's stored state, if it has any."""
        before = runtime.format if runtime else ""
        with self._reporting(config.name):
            table = self.formats.load(config, identifier, before)
        facts = table.facts
        if runtime and before and facts.format != before and facts.uuid == runtime.uuid:
            raise TableRefused(
                f"{identifier} is known as a table of the format {before} and turns up as one of the format "
                f"{facts.format}, under the same id {facts.uuid}",
                reason="another-format",
                hint=f"Check {TABLE_FORMATS} of catalog {identifier.catalog}, and who else writes the table.",
            )
        return table


def _misconfigured(catalog: CatalogConfig, problem: str) -> CatalogMisconfigured:
    return CatalogMisconfigured(
        f"catalog {catalog.name}: {TABLE_FORMATS} {problem}",
        hint="Name installed formats, separated by commas; install a package here to plug in another one.",
    )


log = get_logger("amoro.optimizing")

FRESH = timedelta(minutes=1)
#: How long a failure to load a table is reused: all tasks of the table would wait for the same catalog.
FAILED_FRESH = timedelta(seconds=1)


class Vending:
    """The properties of each table's storage, with credentials, reloaded when they are older than a minute."""

    def __init__(self, load: Callable[[TableIdentifier], Mapping[str, str]], clock: Callable[[], datetime]) -> None:
        """`load` requests the properties from the table's catalog; it may raise AmoroError."""
        self._load, self._clock = load, clock
        #: When they were loaded, for how long they are fresh, and the properties; in order of insertion.
        self._vended: dict[TableIdentifier, tuple[datetime, timedelta, Mapping[str, str]]] = {}
        self._lock = Lock()

    def properties_of(self, identifier: TableIdentifier) -> Mapping[str, str]:
        """The properties for the table's files; none where the table can't be loaded."""
        now = self._clock()
        if (vended := self._vended.get(identifier)) and _is_fresh(vended[0], vended[1], now):
            return vended[2]
        try:
            properties = self._load(identifier)
        except AmoroError as error:
            # The optimizer may have credentials of its own; if not, its attempt fails with a reason and is retried.
            log.warning("credentials.unavailable", table=str(identifier), error=error.message)
            self.keep(identifier, {}, self._clock(), FAILED_FRESH)
            return {}
        self.keep(identifier, properties, now)
        return properties

    def keep(
        self, identifier: TableIdentifier, properties: Mapping[str, str], since: datetime, fresh: timedelta = FRESH
    ) -> None:
        """Store the properties of a table that was loaded at that time, and remove outdated ones."""
        now = self._clock()
        with self._lock:
            self._vended.pop(identifier, None)
            self._vended[identifier] = since, fresh, properties
            while self._vended and not _is_fresh(next(iter(self._vended.values()))[0], FRESH, now):
                del self._vended[next(iter(self._vended))]


def _is_fresh(since: datetime, fresh: timedelta, now: datetime) -> bool:
    """Whether `now` is within `fresh` of `since`; an earlier `now` is not: the clock was set back."""
    return timedelta() <= now - since < fresh
