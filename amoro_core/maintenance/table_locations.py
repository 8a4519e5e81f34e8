"""Locations of a table's files, whether they are shared, and the files referenced there."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from amoro_core.errors import TableRefused
from amoro_core.model.maintenance import StoredFile
from amoro_core.model.paths import is_within, normalise


@dataclass(frozen=True, slots=True)
class TableLocations:
    """The locations of a table's files, according to its metadata."""

    location: str
    places: tuple[str, ...]  # that are listed, none within another
    metadata_place: str
    flink_place: str  # where Flink keeps manifests that it has not committed yet
    writable: tuple[str, ...]  # what is deleted lies below one of these
    partition_fields: tuple[str, ...] = ()  # names of all specs' fields
    must_be_listed: tuple[str, ...] = ()  # files that certainly exist
    same_schemes: Mapping[str, str] = field(default_factory=dict)  # by which others go, where names differ
    same_authorities: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[str, ...] = ()  # what is listed lies below one of these

    @property
    def context(self) -> str:
        """The part of its own files' paths in a location that tables may share: its namespace and name."""
        return "/".join(normalise(self.location).split("/")[-2:])

    def is_own(self, place: str) -> bool:
        """Whether a location is the table's alone: it is within the table's location, or named after the table."""
        return is_within(place, self.location) or f"/{self.context}/" in f"{normalise(place)}/"


@dataclass(frozen=True, slots=True)
class ReferencedFiles:
    """The files that the table references, as the search needs them."""

    #: The schemes and authorities with which the table references each path, in any spelling; empty: it does not.
    places_of: Callable[[Sequence[str]], Sequence[Collection[tuple[str, str]]]]


def is_below(path: str, place: str) -> bool:
    """Whether a normalised path lies below a normalised place."""
    return path.startswith(f"{place.rstrip('/')}/")


def by_place(places: Iterable[str], page: Sequence[StoredFile]) -> Iterator[tuple[str, Sequence[StoredFile]]]:
    """The files of a page below each of the places; none of a place that has none."""
    for place in places:
        prefix = normalise(place)
        if inside := [file for file in page if is_below(file.path, prefix)]:
            yield place, inside


def outermost(places: Iterable[str]) -> tuple[str, ...]:
    """The distinct locations in order, without those within another."""
    wanted = list(dict.fromkeys(normalise(one) for one in places if one))
    return tuple(one for one in wanted if not any(is_below(one, other) for other in wanted))


def refuse_shared(name: str, ground: TableLocations, places: Iterable[str], neighbours: Mapping[str, str]) -> None:
    """Raise TableRefused("shared-location") when another known table lies at, above or below one of the locations, or
    has the same names in a location that is not this table's alone."""
    listed = (ground.location, *places)
    for other, location in sorted(neighbours.items()):
        shared = next((one for one in listed if is_within(one, location) or is_within(location, one)), None)
        if shared is None and any(not is_within(one, ground.location) for one in places):
            is_namesake = "/".join(normalise(location).split("/")[-2:]) == ground.context
            shared = location if is_namesake else None
        if shared is not None:
            raise TableRefused(
                f"{name} and {other} share a place: {shared} and {location}; files of one would be taken for orphans "
                "of the other",
                reason="shared-location",
            )


def settled_names(text: str) -> dict[str, str]:
    """The value of `equal-schemes` or `equal-authorities`: `a,b=c; d=e` treats a and b as c. Raises ValueError."""
    found: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        names, equals, one = (side.strip() for side in part.partition("="))
        if not (names and equals and one):
            raise ValueError("expected names that are equal to one, such as s3a,s3n=s3")
        found |= {name.strip(): one for name in names.split(",")}
    return found
