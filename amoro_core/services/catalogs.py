"""The catalogs that are known: those that somebody added here and those of pyiceberg's own configuration."""

import difflib
from collections.abc import Callable, Mapping, Sequence

from amoro_core.errors import AlreadyExists, CatalogNotFound, InvalidArgument
from amoro_core.formats.port import TableFormat
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier, parse_table
from amoro_core.store import catalogs
from amoro_core.store.database import Store


class CatalogService:
    """Catalogs by name. One added here hides one of the same name in pyiceberg's configuration."""

    def __init__(
        self,
        store: Store,
        tables: TableFormat,
        foreign: Callable[[], Sequence[CatalogConfig]],
        mask: Callable[[Mapping[str, str]], dict[str, str]],
    ) -> None:
        self._store = store
        self._format = tables
        self._foreign = foreign
        self._mask = mask

    def list_catalogs(self) -> list[CatalogConfig]:
        """All known catalogs, in order of their names."""
        known = {config.name: config for config in self._foreign()}
        known |= {config.name: config for config in self._store.read(catalogs.list_catalogs)}
        return [known[name] for name in sorted(known)]

    def get(self, name: str) -> CatalogConfig:
        """Raises CatalogNotFound."""
        known = {config.name: config for config in self.list_catalogs()}
        if name in known:
            return known[name]
        close = difflib.get_close_matches(name, known, n=1)
        if close:
            hint = f"Did you mean {close[0]}?"
        elif known:
            hint = f"Known catalogs: {', '.join(known)}."
        else:
            hint = "Add one with `amoro catalog add NAME type=… uri=…`, or configure it in ~/.pyiceberg.yaml."
        raise CatalogNotFound(f"catalog {name!r} is not known", hint=hint)

    def add(self, config: CatalogConfig) -> CatalogConfig:
        """Keep a catalog after its connection was tried. Raises AlreadyExists, CatalogUnavailable."""
        if not config.name or any(letter in config.name for letter in ".` \t\n/"):
            raise InvalidArgument(
                f"{config.name!r} can't be the name of a catalog", hint="Use letters, digits, _ and -."
            )
        if self._store.read(lambda db: catalogs.find(db, config.name)) is not None:
            raise AlreadyExists(f"catalog {config.name!r} exists already")
        self._format.check(config)
        self._store.write(lambda db: catalogs.add(db, config))
        return config

    def commits_refused(self, config: CatalogConfig) -> str | None:
        """Why nothing can be committed there; None when it can."""
        return self._format.commits_refused(config)

    def shown(self, config: CatalogConfig) -> dict[str, str]:
        """The catalog's properties as they may be shown: secrets masked."""
        return self._mask(dict(config.properties))

    def resolve(self, text: str) -> TableIdentifier:
        """The table that a text names; its catalog may be left out where exactly one is known.

        Raises InvalidArgument, CatalogNotFound.
        """
        known = self.list_catalogs()
        only = known[0].name if len(known) == 1 else None
        identifier = parse_table(text, only)
        if only is not None and identifier.catalog != only and len(identifier.namespace) >= 1:
            # "a.b.t" with one catalog "cat" may be cat.a.b.t; a catalog's own name wins.
            identifier = TableIdentifier(only, (identifier.catalog, *identifier.namespace), identifier.name)
        self.get(identifier.catalog)
        return identifier
