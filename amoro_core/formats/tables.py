"""Opening tables by name: finding the catalog, and which of the catalog's formats the table has."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from amoro_core.errors import CatalogMisconfigured, CatalogUnavailable, TableNotFound, TableRefused
from amoro_core.formats.port import Locating, OpenTable, Revalidating, TableFormat
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import ICEBERG, TABLE_FORMATS, TableIdentifier, TableRuntime


class Formats:
    """The installed formats. A catalog has those in its property `table-formats`; without it, Iceberg."""

    def __init__(self, formats: Iterable[TableFormat]) -> None:
        self._known: Mapping[str, TableFormat] = {format.name: format for format in formats}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the installed formats."""
        return tuple(self._known)

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
        return sorted({found for format in self._of(catalog) for found in format.list_tables(catalog)})

    def locations(
        self, catalog: CatalogConfig, names: Collection[tuple[str, ...]]
    ) -> Mapping[str, Mapping[tuple[str, ...], str]] | None:
        """Where the metadata of those tables are, by format and name in the catalog; None: asked table by table."""
        asked = {one.name: one.locations(catalog, names) for one in self._of(catalog) if isinstance(one, Locating)}
        found = {name: places for name, places in asked.items() if places is not None}
        return found or None

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
        said = dict(catalog.properties).get(TABLE_FORMATS, ICEBERG)
        names = list(dict.fromkeys(name for part in said.split(",") if (name := part.strip().lower())))
        if not names:
            raise _misconfigured(catalog, "names no format")
        for name in names:
            if name not in self._known:
                raise _misconfigured(catalog, f"names {name!r}, which is not installed; known: {', '.join(self.names)}")
        return [self._known[name] for name in names]


class Tables:
    """Every table of every catalog, by its name alone."""

    def __init__(
        self,
        formats: Formats,
        find_catalog: Callable[[str], CatalogConfig],
        find_known: Callable[[TableIdentifier], TableRuntime | None] = lambda identifier: None,
        heard: Callable[[str, CatalogUnavailable | None], None] = lambda catalog, error: None,
    ) -> None:
        """`find_known` returns the state kept about a table, whose format is tried first; `heard` is told of each
        answer of a catalog, or why there was none."""
        self.formats = formats
        self.catalog = find_catalog
        self._find_known = find_known
        self._heard = heard

    def list_all(self, config: CatalogConfig) -> list[TableIdentifier]:
        """The tables of the catalog that its filters admit, in order of their names. Raises CatalogUnavailable."""
        with self._hearing(config.name):
            return self.formats.list_tables(config)

    def locations(
        self, config: CatalogConfig, names: Collection[tuple[str, ...]]
    ) -> Mapping[str, Mapping[tuple[str, ...], str]] | None:
        """Where the metadata of those tables are, by format and name in the catalog; None: asked table by table only.

        Raises CatalogUnavailable.
        """
        with self._hearing(config.name):
            return self.formats.locations(config, names)

    def is_unchanged(self, table: TableRuntime) -> bool:
        """Whether the catalog says that a table is as it was last loaded; False when nobody can say so.

        Raises CatalogNotFound, CatalogUnavailable.
        """
        config, location = self.catalog(table.identifier.catalog), table.metadata_location
        format = self.formats.find(config, table.format)
        if not location or not isinstance(format, Revalidating):
            return False
        with self._hearing(config.name):
            return format.is_unchanged(config, table.identifier, location)

    @contextmanager
    def _hearing(self, catalog: str) -> Iterator[None]:
        try:
            yield
        except CatalogUnavailable as error:
            self._heard(catalog, error)
            raise
        except (TableNotFound, TableRefused):
            self._heard(catalog, None)
            raise
        self._heard(catalog, None)

    def open(self, identifier: TableIdentifier) -> OpenTable:
        """The table's present state.

        Raises CatalogNotFound, CatalogUnavailable; TableNotFound only when the catalog said that it does not exist;
        TableRefused("format") when it exists in none of the catalog's formats, and TableRefused("another-format") when
        a known table turns up in another format.
        """
        return self.load(self.catalog(identifier.catalog), identifier, self._find_known(identifier))

    def load(self, config: CatalogConfig, identifier: TableIdentifier, known: TableRuntime | None) -> OpenTable:
        """As `open`, of that catalog, for a caller who has read what is kept about the table; None: nothing."""
        kept = known.format if known else ""
        with self._hearing(config.name):
            table = self.formats.load(config, identifier, kept)
        facts = table.facts
        if known and kept and facts.format != kept and facts.uuid == known.uuid:
            raise TableRefused(
                f"{identifier} is known as a table of the format {kept} and turns up as one of the format "
                f"{facts.format}, under the same id {facts.uuid}",
                reason="another-format",
                hint=f"Check {TABLE_FORMATS} of catalog {identifier.catalog}, and who else writes the table.",
            )
        return table


def _misconfigured(catalog: CatalogConfig, what: str) -> CatalogMisconfigured:
    return CatalogMisconfigured(
        f"catalog {catalog.name}: {TABLE_FORMATS} {what}",
        hint="Name installed formats, separated by commas; install a package here to plug in another one.",
    )
