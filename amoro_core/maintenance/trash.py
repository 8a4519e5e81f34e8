"""Amoro's moving trash: files that nothing needs are renamed into a folder, and deleted from there days later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.errors import misconfigured
from amoro_core.model.paths import flaw_of_prefix, key_in_place, normalise, split_place
from amoro_core.model.properties import boolean, declared, optional, parse_into, whole
from amoro_core.model.tables import TableIdentifier

SWITCH = "table-trash.enabled"
ROOT = "table-trash.custom-root-location"
#: The folder's name, which is Amoro's. Names that begin with a dot are never searched for orphan files.
FOLDER = ".trash"
#: The schemes of storages in which a rename copies nothing.
_RENAMING = ("file", "hdfs", "viewfs")
_MOST_DAYS = 36525
#: Amoro's: Parquet files, manifest lists, manifests, and the metadata files of tables without a catalog.
_PATTERN = (
    r".+\.parquet|.*snap-[0-9]+-[0-9]+-.+\.avro|.*version-hint.text|.*v[0-9]+\.metadata\.json"
    r"|.*[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}-m[0-9]+\.avro"
)


def _days(text: str) -> timedelta:
    return timedelta(days=min(whole(0)(text), _MOST_DAYS))


def _root(text: str) -> str | None:
    if text.strip() and (flaw := flaw_of_prefix(text.strip())):
        raise ValueError(f"expected a location: {flaw}")
    return optional(text)


def _expression(text: str) -> str:
    """A regular expression that takes linear time (RE2): a table's owner cannot stall the service with one."""
    try:
        _matches(text, [""])
    except pa.ArrowInvalid as error:
        raise ValueError(f"expected a regular expression: {error}") from error
    return text


def _matches(expression: str, texts: Sequence[str]) -> list[bool]:
    matches: list[bool] = pc.match_substring_regex(pa.array(texts, pa.string()), rf"\A(?:{expression})\z").to_pylist()
    return matches


@dataclass(frozen=True, slots=True)
class TrashConfig:
    """The table's properties that ask for files to be moved instead of deleted."""

    enabled: bool = declared(SWITCH, "false", boolean)
    root: str | None = declared(ROOT, "", _root)
    keep: timedelta = declared("table-trash.keep.days", "7", _days)
    file_pattern: str = declared("table-trash.file-pattern", _PATTERN, _expression)


@dataclass(frozen=True, slots=True)
class Trash:
    """The folder to which a table's files are moved."""

    root: str
    keep: timedelta  # from the move on
    file_pattern: str

    def takes(self, paths: Sequence[str]) -> list[bool]:
        """Whether each file is moved; others are deleted."""
        return _matches(self.file_pattern, paths)

    def folder(self, day: datetime, process_id: str) -> str:
        """The folder of what a process has condemned and is moved on that day. No two processes have the same."""
        return f"{self.root}/{day.astimezone(UTC):%Y%m%d}/{process_id}"


def trash_of(properties: Mapping[str, str], identifier: TableIdentifier, location: str) -> Trash | None:
    """The trash of a table; None: files are deleted. Raises TableRefused("configuration") where a move is a copy."""
    config = parse_into(TrashConfig, properties)
    if not config.enabled:
        return None
    parent = normalise(location)
    if config.root is not None:
        names = (identifier.catalog, *identifier.namespace, identifier.name)
        parent = "/".join((normalise(config.root).rstrip("/"), *names))
    scheme, authority, _ = split_place(parent)
    if scheme not in _RENAMING:
        raise misconfigured(
            f"{SWITCH}=true asks for deleted files to be moved to a trash, and a move in {scheme}:// is a copy: "
            "none is deleted",
            hint=f"Files can be restored until they are due. To have them deleted then: {SWITCH}=false.",
        )
    if (scheme, authority) != split_place(location)[:2]:
        raise misconfigured(
            f"{ROOT}={config.root!r} lies in another storage than the table at {location}: a move would be a copy"
        )
    return Trash(f"{parent}/{FOLDER}", config.keep, config.file_pattern)


def root_of(folder: str) -> str:
    """The trash that a folder of it belongs to."""
    return folder.rsplit("/", 2)[0]


def place_in(folder: str, path: str) -> str:
    """Where a file lies once it was moved to the folder: its whole path below that, so that no two files meet."""
    return f"{folder}{key_in_place(path)}"


def is_in_trash(place: str, prefix: str) -> bool:
    """Whether a place lies in a trash below the prefix."""
    return FOLDER in normalise(place).removeprefix(normalise(prefix)).split("/")
