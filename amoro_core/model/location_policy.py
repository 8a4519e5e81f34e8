"""Where the files of a catalog's tables may lie: decided by an administrator, never by a table's owner alone."""

from dataclasses import dataclass

from amoro_core.errors import CatalogMisconfigured, TableRefused
from amoro_core.model.paths import flaw_of_location, is_local, is_within
from amoro_core.model.processes import CatalogConfig

STRICT_LOCATIONS = "strict-locations"


@dataclass(frozen=True, slots=True)
class Grant:
    """The prefixes below which a catalog's tables may have their files: its warehouse, and the allowed ones.

    In an object store a table's own location is granted too, unless the grant is strict. On local file systems it never
    is: files are opened with the permissions of the service, while the table's owner writes the metadata.
    """

    prefixes: tuple[str, ...]
    strict: bool = False
    way_out: str = ""  # how an administrator allows a prefix

    def covers(self, place: str) -> bool:
        """Whether a place lies below one of the prefixes."""
        return any(is_within(place, prefix) for prefix in self.prefixes)

    def readable(self, location: str) -> tuple[str, ...]:
        """The prefixes below which files of the table at `location` may be read, without a slash at their end."""
        # A local location is granted by the prefix that contains it, which also limits where links may lead.
        is_own = not is_local(location) and flaw_of_location(location) is None
        own = (location,) if is_own and (self.covers(location) or not self.strict) else ()
        return tuple(dict.fromkeys(prefix.rstrip("/") or "/" for prefix in (*own, *self.prefixes)))

    def writable(self, location: str, *paths: str) -> tuple[str, ...]:
        """The table's location and other paths, as far as files may be written and deleted below them."""
        readable = self.readable(location)
        named = dict.fromkeys(path.rstrip("/") for path in (location, *paths))
        return tuple(path for path in named if path and any(is_within(path, prefix) for prefix in readable))

    def refuse(self, location: str, *paths: str) -> None:
        """Raise TableRefused("location") unless files may be written below the location and each of the paths."""
        for path in (location, *paths):
            if flaw := flaw_of_location(path):
                raise TableRefused(
                    f"{path!r}, below which files of the table would be written, is not a location: {flaw}",
                    reason="location",
                )
        written = self.writable(location, *paths)
        for path in (location, *paths):
            if not any(is_within(path, prefix) for prefix in written):
                raise TableRefused(
                    f"files of the table would be written to {path}, outside the locations allowed for its catalog",
                    reason="location",
                    hint=self.way_out,
                )


def grant_of(config: CatalogConfig, warehouse: tuple[str, ...]) -> Grant:
    """The grant for the tables of a catalog with that warehouse, "" if unknown. Raises CatalogMisconfigured."""
    return Grant((*warehouse, *config.allowed_locations), is_strict(config), _way_out(config, warehouse))


def is_strict(config: CatalogConfig) -> bool:
    """Whether settings or the catalog's own property exclude the tables' own locations.

    Raises CatalogMisconfigured for a malformed property.
    """
    value = dict(config.properties).get(STRICT_LOCATIONS, "false").strip().lower()
    if value not in ("true", "false"):
        raise CatalogMisconfigured(
            f"catalog {config.name}: {STRICT_LOCATIONS} has the malformed value {value!r}: expected true or false"
        )
    return config.strict_locations or value == "true"


def _way_out(config: CatalogConfig, warehouse: tuple[str, ...]) -> str:
    """How to allow a prefix, depending on where the catalog is configured."""
    if config.origin == "amoro":
        allow = f"amoro catalog update {config.name} --allow-location PREFIX"
        name_it = f"amoro catalog update {config.name} warehouse=file:///PATH"
    else:
        allow = f"in amoro.yaml: catalogs: {{{config.name}: {{allow-locations: [PREFIX]}}}}"
        name_it = f"the property warehouse of catalog {config.name} in pyiceberg's configuration"
    if warehouse:
        return f"An administrator can allow a prefix: {allow}"
    return f"No warehouse of catalog {config.name} is known. Name it: {name_it}; or allow a prefix: {allow}"
