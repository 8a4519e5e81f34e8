"""Locations of a table's files, whether they are shared, and which files there are orphans."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from amoro_core.errors import CatalogUnavailable, TableRefused
from amoro_core.maintenance.snapshots import span
from amoro_core.model.maintenance import EVERYWHERE, Condemned, FileKind, KeyRange, StoredFile, Surroundings
from amoro_core.model.paths import is_within, normalise, path_aliases, split_place
from amoro_core.model.properties import boolean, declared, minutes


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
    wanted = list(dict.fromkeys(normalise(place) for place in places if place))
    return tuple(place for place in wanted if not any(is_below(place, other) for other in wanted))


def refuse_shared(name: str, ground: TableLocations, places: Iterable[str], neighbours: Mapping[str, str]) -> None:
    """Raise TableRefused("shared-location") when another known table lies at, above or below one of the locations, or
    has the same names in a location that is not this table's alone."""
    listed = (ground.location, *places)
    for other, location in sorted(neighbours.items()):
        shared = next((place for place in listed if is_within(place, location) or is_within(location, place)), None)
        if shared is None and any(not is_within(place, ground.location) for place in places):
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
    result: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        names, equals, target = (side.strip() for side in part.partition("="))
        if not (names and equals and target):
            raise ValueError("expected names that are equal to one, such as s3a,s3n=s3")
        result |= {name.strip(): target for name in names.split(",")}
    return result


#: The property that switches the action on and off.
SWITCH = "clean-orphan-file.enabled"
#: No younger file is an orphan, whatever is requested: a commit that will reference it may be in progress.
LEAST_AGE = timedelta(minutes=1440)
#: A file written this much later than now shows that a clock can't be trusted.
MOST_AHEAD = timedelta(minutes=10)
#: How long files of an ended process are kept after the last moment at which its tasks can run.
AFTER_THE_END = timedelta(hours=1)
#: Maximum of one process; the rest is found by the next.
MOST_AT_ONCE = 1_000_000
#: Why orphans stay that are more than that.
BEYOND = "beyond what one process takes"

#: How long Flink's manifests are kept. Older ones belong to a job that won't be restored any more.
IN_FLIGHT = timedelta(days=7)
#: Job, operator, subtask, attempt, checkpoint and number, as Iceberg's `ManifestOutputFileFactory` joins them.
_FLINK = re.compile(r"[0-9a-f]{32}-.+-\d+-\d+-\d+-\d+(-.+)?\.avro", re.DOTALL)
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
#: Outputs of tasks: process, task, attempt, and a name of their own.
_OUTPUT = re.compile(rf"({_UUID})-\d+-\d+-{_UUID}.*", re.DOTALL)
_METADATA = re.compile(r".*\.metadata\.json(\.gz)?", re.DOTALL)
_HINT = "version-hint.text"


@dataclass(frozen=True, slots=True)
class OrphanConfig:
    """The properties of a table for cleaning orphan files."""

    enabled: bool = declared(SWITCH, "false", boolean)
    min_existing_time: timedelta = declared("clean-orphan-file.min-existing-time-minutes", "2880", minutes)
    trash_keep: timedelta = declared("maintenance.clean-orphan-files.trash-keep", "7d", span)

    @property
    def age(self) -> timedelta:
        """The minimum age of an orphan file; never less than a day."""
        return max(self.min_existing_time, LEAST_AGE)


@dataclass(frozen=True, slots=True)
class OrphanConditions:
    """The conditions under which files are evaluated."""

    now: datetime
    age: timedelta
    start_to_close: timedelta  # how long a task may run
    around: Surroundings
    in_flight: frozenset[str] = frozenset()  # files that a writer may still commit, with what names them
    is_needed: Callable[[str], bool] | None = None  # in place of those, and of `around.paths`
    is_condemned: Callable[[str], bool] | None = None  # in place of `around.condemned`
    latest: datetime | None = None  # what is written until then may be true; without it, until `now`
    most: int = MOST_AT_ONCE
    within: KeyRange = EVERYWHERE  # what is named and needed is known only for paths spelled in that range


@dataclass(slots=True)
class SearchResult:
    """The findings of a search so far."""

    orphans: list[Condemned] = field(default_factory=list)
    metadata_files: list[StoredFile] = field(default_factory=list)  # not named; to be opened before they are evaluated
    unopened: str = ""  # a manifest that Flink may still commit, and that has not been read
    files: int = 0  # examined
    bytes: int = 0
    without_time: int = 0
    kept: Counter[str] = field(default_factory=Counter)  # not named and kept all the same, by reason
    beyond_bytes: int = 0  # of orphans that are more than one process takes
    unseen: set[str] = field(default_factory=set)  # of the files that are there for certain


class Search:
    """Evaluates files page by page. Each is kept unless it is old enough and not referenced."""

    def __init__(self, ground: TableLocations, named: ReferencedFiles, terms: OrphanConditions) -> None:
        self._ground = ground
        self._named = named
        self._terms = terms
        self._is_needed = terms.is_needed or _among([*terms.around.paths, *terms.in_flight])
        self._is_condemned = terms.is_condemned or _among(terms.around.condemned)
        self._hidden_but = tuple(f"{name}=" for name in ground.partition_fields if name.startswith(("_", ".")))
        self.found = SearchResult(unseen=set(map(normalise, ground.must_be_listed)))

    def see(self, place: str, page: Sequence[StoredFile]) -> None:
        """Evaluate files that lie below a place.

        Raises CatalogUnavailable for a time that can't be true, TableRefused("authority") for a path that the table
        names in another storage.
        """
        prefix = place.rstrip("/") + "/"
        here = self._settled(split_place(place)[:2])
        places = self._named.places_of([file.path for file in page])
        for file, named_in in zip(page, places, strict=True):
            self.found.files += 1
            self.found.bytes += file.size_bytes
            self.found.unseen.discard(file.path)
            self._require_true_time(file)
            if named_in:
                self._require_same_place(file.path, here, named_in)
                continue
            self._evaluate(file, file.path.removeprefix(prefix), is_shared=not self._ground.is_own(place))

    def opened(self, uuids: Mapping[str, str], own: str) -> None:
        """Evaluate the metadata files, by the UUIDs of their tables; "": unknown.

        Raises TableRefused("shared-location") for one of another table, then CatalogUnavailable for a manifest of
        Flink's that was not opened: it may be of that table.
        """
        for file in self.found.metadata_files:
            uuid = uuids.get(file.path, "")
            if uuid and uuid.lower() != own.lower():
                raise TableRefused(
                    f"{file.path} is a metadata file of another table, with the UUID {uuid}: two tables share a place, "
                    "and files of one would be taken for orphans of the other",
                    reason="shared-location",
                )
            if uuid:
                self._evaluate_by_time(file, "no metadata of the table leads to it any more")
            else:
                self.found.kept["metadata that can't be read"] += 1
        self.found.metadata_files = []
        self._require_opened()

    def end(self) -> SearchResult:
        """The findings, once everything was seen.

        Raises CatalogUnavailable when most files have no time, a file that certainly exists is missing, or a manifest
        of Flink's was not opened.
        """
        result = self.found
        self._require_opened()
        if result.unseen:
            raise CatalogUnavailable(
                f"the listing lacks {min(result.unseen)}, which the table has: it was cut, or is of an earlier time"
            )
        if 2 * result.without_time > result.files:
            raise CatalogUnavailable(
                f"{result.without_time} of {result.files} listed files have no modification time",
                hint="List them by an inventory that has one: --file-list.",
            )
        return result

    def _evaluate(self, file: StoredFile, below: str, *, is_shared: bool) -> None:
        within = self._terms.within
        if within is not EVERYWHERE and not all(map(within.holds, path_aliases(file.path))):
            self.found.kept["spelled in a way that is looked for elsewhere"] += 1
        elif is_shared and f"/{self._ground.context}/" not in f"/{below}":
            self.found.kept["in a place that tables share"] += 1
        elif self._is_hidden(below) or below.rpartition("/")[2] == _HINT:
            self.found.kept["hidden"] += 1
        elif self._is_condemned(file.path):
            self.found.kept["condemned already"] += 1
        elif self._is_needed(file.path):
            self.found.kept["used by a process or not committed yet"] += 1
        elif _METADATA.fullmatch(below):
            self.found.metadata_files.append(file)
        elif is_in_flight(file, self._terms.now) and not self._is_young(file):
            self.found.unopened = self.found.unopened or file.path
        else:
            self._evaluate_output(file)

    def _evaluate_output(self, file: StoredFile) -> None:
        """Evaluate an output of one of our processes, which is recognised by its name."""
        output = _OUTPUT.fullmatch(file.path.rpartition("/")[2])
        process_id = output[1] if output else ""
        if process_id in self._terms.around.active:
            self.found.kept["used by a process or not committed yet"] += 1
        elif (ended_at := self._terms.around.ended.get(process_id)) is None:
            self._evaluate_by_time(file, "no snapshot of the table names it")
        elif self._terms.now < ended_at + self._terms.start_to_close + AFTER_THE_END:
            self.found.kept["of a process that has ended just now"] += 1
        elif file.modified_at is None:
            self.found.kept["without a time"] += 1
        else:
            self._add(file, f"left over by process {process_id}")

    def _evaluate_by_time(self, file: StoredFile, reason: str) -> None:
        if file.modified_at is None:
            self.found.kept["without a time"] += 1
        elif self._is_young(file):
            self.found.kept["young"] += 1
        else:
            self._add(file, reason)

    def _is_young(self, file: StoredFile) -> bool:
        return file.modified_at is not None and file.modified_at >= self._terms.now - self._terms.age

    def _require_true_time(self, file: StoredFile) -> None:
        now = self._terms.latest or self._terms.now
        if file.modified_at is None:
            self.found.without_time += 1
        elif file.modified_at > now + MOST_AHEAD:
            raise CatalogUnavailable(
                f"{file.path} was written at {file.modified_at.isoformat()}, says its storage, which is later than "
                f"now: {now.isoformat()}",
                hint="Correct the clocks of coordinator and storage: such times make every age uncertain.",
            )

    def _add(self, file: StoredFile, reason: str) -> None:
        if len(self.found.orphans) >= self._terms.most:
            self.found.kept[BEYOND] += 1
            self.found.beyond_bytes += file.size_bytes
            return
        kind = kind_of(file.path, is_below(file.path, self._ground.metadata_place))
        self.found.orphans.append(Condemned(file.path, kind, file.size_bytes, file.modified_at, reason))

    def _require_opened(self) -> None:
        if self.found.unopened:
            raise CatalogUnavailable(
                f"{self.found.unopened} is a manifest that Flink may still commit, and an earlier listing lacked it: "
                "what it names is not known",
                hint="It is tried again by itself; an inventory has to be of today.",
            )

    def _is_hidden(self, below: str) -> bool:
        return any(
            segment.startswith(("_", ".")) and not (self._hidden_but and segment.startswith(self._hidden_but))
            for segment in below.split("/")
        )

    def _require_same_place(self, path: str, here: tuple[str, str], named_in: Collection[tuple[str, str]]) -> None:
        if here not in named_in and not any(_are_one(here, self._settled(name)) for name in named_in):
            scheme, authority = min(named_in)
            raise TableRefused(
                f"the table names {path} as a file of {scheme}://{authority}: it may be the same file",
                reason="authority",
            )

    def _settled(self, place: tuple[str, str]) -> tuple[str, str]:
        scheme, authority = place
        return self._ground.same_schemes.get(scheme, scheme), self._ground.same_authorities.get(authority, authority)


def _are_one(here: tuple[str, str], named: tuple[str, str]) -> bool:
    """Whether scheme and authority are the same; without an authority it is the default one."""
    return here[0] == named[0] and (here[1] == named[1] or not here[1] or not named[1])


def is_in_flight(file: StoredFile, now: datetime) -> bool:
    """Whether a file is a manifest that Flink may still commit; also true if its age is unknown."""
    is_young = file.modified_at is None or file.modified_at > now - IN_FLIGHT
    return is_young and _FLINK.fullmatch(file.path.rpartition("/")[2]) is not None


def kind_of(path: str, in_metadata: bool) -> FileKind:
    """The probable kind of a file, by its name; it only decides the order of deletion."""
    name = path.rpartition("/")[2]
    if _METADATA.fullmatch(name):
        return FileKind.METADATA
    if name.startswith("partition-stats-") or name.endswith((".stats", ".puffin") if in_metadata else ".stats"):
        return FileKind.STATISTICS
    if in_metadata and name.endswith(".avro"):
        return FileKind.MANIFEST_LIST if name.startswith("snap-") else FileKind.MANIFEST
    if name.endswith((".parquet", ".avro", ".orc", ".puffin")):
        return FileKind.DELETE if "-deletes" in name or name.endswith(".puffin") else FileKind.DATA
    return FileKind.OTHER


def breaker(result: SearchResult) -> str:
    """Why a person must confirm the deletion of so much; "" when it is ordinary."""
    files = len(result.orphans) + result.kept[BEYOND]
    size = sum(file.size_bytes or 0 for file in result.orphans) + result.beyond_bytes
    if files > _MOST_FILES:
        return f"{files} orphan files are more than {_MOST_FILES}"
    if size > _MOST_BYTES:
        return f"orphan files of {size} bytes are more than {_MOST_BYTES} bytes"
    if result.files < _LEAST_LISTED:
        return ""
    if _MOST_SHARE * files > result.files:
        return f"{files} of {result.files} listed files are orphans, more than 20 %"
    if _MOST_SHARE * size > result.bytes:
        return f"{size} of {result.bytes} listed bytes are orphans, more than 20 %"
    return ""


_MOST_FILES, _MOST_BYTES = 10_000, 10**12
_LEAST_LISTED, _MOST_SHARE = 100, 5


def _among(paths: Iterable[str]) -> Callable[[str], bool]:
    spelled = frozenset(spelling for path in paths for spelling in path_aliases(path))
    return lambda path: not spelled.isdisjoint(path_aliases(path))
