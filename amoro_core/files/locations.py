"""Where files lie: one spelling for each place, and which places may be touched."""

import re
from collections.abc import Iterable

from amoro_core.errors import TableRefused

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_LOCAL_HOSTS = ("", "localhost")


def normalise(path: str) -> str:
    """The one spelling of a place: `/x` for local files however they are written, `s3://` for each of its schemes.

    Purely textual; `..` segments stay, and `require_within` refuses them.
    """
    match = None if path.startswith("/") else _URI.fullmatch(path)
    if match is None:
        return _local(path)
    scheme, rest = match[1].lower(), match[2]
    authority, key = _split(rest)
    if scheme == "file" and authority in _LOCAL_HOSTS:
        return _local(key)
    return f"{_ALIASES.get(scheme, scheme)}://{authority}{key.rstrip('/')}"


def same_place(a: str, b: str) -> bool:
    """Whether two paths name the same file or directory."""
    return a == b or normalise(a) == normalise(b)


def scheme_of(path: str) -> str:
    """The scheme of a normalised path, `file` for a local one."""
    scheme, found, _ = path.partition("://")
    return scheme if found and not path.startswith("/") else "file"


def is_within(path: str, location: str) -> bool:
    """Whether a path is a location or lies below it, by whole segments."""
    place, prefix = normalise(path), normalise(location)
    return place == prefix or place.startswith(prefix if prefix.endswith("/") else prefix + "/")


def require_within(path: str, locations: Iterable[str], verb: str) -> str:
    """The normalised path. Raises TableRefused(reason="location") when it is in none of the locations."""
    place = normalise(path)
    if ".." in place.split("/"):
        raise TableRefused(f"will not {verb} {path}: the path has a '..' segment", reason="location")
    if not any(is_within(place, location) for location in locations):
        raise TableRefused(
            f"will not {verb} {path}: it is outside the locations allowed for this table",
            reason="location",
            hint="an administrator can allow a prefix for reading: amoro catalog update --allow-location",
        )
    return place


def _split(rest: str) -> tuple[str, str]:
    """Authority and path of what follows a scheme's colon; the path starts with a slash or is empty."""
    if not rest.startswith("//"):
        return "", rest if rest.startswith("/") else "/" + rest
    authority, slash, key = rest[2:].partition("/")
    return authority, slash + key


def _local(path: str) -> str:
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(segments)
