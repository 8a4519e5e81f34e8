"""Locations of files: normalised spelling, and which locations may be accessed."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from pyiceberg.table.locations import ObjectStoreLocationProvider

from amoro_core.errors import TableRefused
from amoro_core.model.paths import lies_in, normalise

_WAY_OUT = "An administrator can allow a prefix: amoro catalog update --allow-location, or by catalog in amoro.yaml."
#: Paths that are known to lie within: a table's manifests and directories are asked for at each look at it.
_MOST_KNOWN = 16_384


def same_place(a: str, b: str) -> bool:
    """Whether two paths name the same file or directory."""
    return a == b or normalise(a) == normalise(b)


def new_location(
    table_location: str, data_location: str, directory: str, name: str, properties: Mapping[str, str]
) -> str:
    """The location of a new file: in its partition's directory or, with `write.object-storage.enabled`, below
    directories made of a hash of the rest, like those of Iceberg's ObjectStoreLocationProvider in Java.

    Outside the table's location such paths contain the table's name and its parent's, since tables may share the
    directory. Where such paths omit partitions, Java joins hash and name by a hyphen; here they are separate segments.
    """
    prefix = data_location.rstrip("/")
    if not _is_true(properties, "write.object-storage.enabled", default=False):
        return "/".join(part for part in (prefix, directory, name) if part)
    with_partition = directory and _is_true(properties, "write.object-storage.partitioned-paths", default=True)
    rest = f"{directory}/{name}" if with_partition else name
    location = ObjectStoreLocationProvider(prefix, {"write.data.path": prefix}).new_data_location(rest)
    if prefix.startswith(table_location.rstrip("/")):
        return location
    context = "/".join(table_location.rstrip("/").split("/")[-2:])
    return f"{location.removesuffix(rest)}{context}/{rest}"


def _is_true(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    return properties.get(key, str(default)).strip().lower() == "true"


def require_within(path: str, locations: Iterable[str], verb: str, hint: str = "") -> str:
    """The normalised path. Raises TableRefused(reason="location") when it lies in none of the locations."""
    return require_all_within((path,), locations, verb, hint)[0]


def require_all_within(paths: Iterable[str], locations: Iterable[str], verb: str, hint: str = "") -> list[str]:
    """The normalised paths. Raises TableRefused(reason="location") for the first that lies in none of the locations."""
    prefixes = tuple(map(normalise, locations))
    return [_require_within(path, prefixes, verb, hint) for path in paths]


@lru_cache(_MOST_KNOWN)
def _require_within(path: str, prefixes: tuple[str, ...], verb: str, hint: str) -> str:
    place = normalise(path)
    if ".." in place.split("/"):
        raise TableRefused(f"will not {verb} {path}: the path has a '..' segment", reason="location")
    if "\0" in place:
        raise TableRefused(f"will not {verb} {path!r}: the path has a NUL character", reason="location")
    if not any(lies_in(place, prefix) for prefix in prefixes):
        raise TableRefused(
            f"will not {verb} {path}: it is outside the locations allowed for this table",
            reason="location",
            hint=hint or _WAY_OUT,
        )
    return place
