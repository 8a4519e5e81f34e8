"""Locations of files as strings. Nothing here accesses a file system."""

import posixpath
import re
import unicodedata
from urllib.parse import unquote

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_LOCAL_HOSTS = ("", "localhost")
#: Their authority is `container@account.dfs.core.windows.net`.
AZURE_SCHEMES = frozenset(("abfs", "abfss", "wasb", "wasbs"))
#: The kinds of storage that are known, by scheme.
SCHEMES = AZURE_SCHEMES | {"file", "s3", "s3a", "s3n", "gs", "gcs", "oss", "hdfs", "viewfs"}
_WITH_DEFAULT_AUTHORITY = frozenset(("hdfs", "viewfs"))


def normalise(path: str) -> str:
    """The normalised spelling of a location: `/x` for local files however written, `s3://` for each of S3's schemes.

    Purely textual; `..` segments and percent signs are kept.
    """
    if path.startswith("file:///"):
        return _local(path.removeprefix("file://"))
    match = None if path.startswith("/") else _URI.fullmatch(path)
    if match is None:
        return _local(path)
    scheme, rest = match[1].lower(), match[2]
    authority, key = _split(rest)
    if scheme == "file" and authority in _LOCAL_HOSTS:
        return _local(key)
    return f"{_ALIASES.get(scheme, scheme)}://{authority}{key.rstrip('/')}"


def spellings(place: str) -> tuple[str, ...]:
    """How a normalised location may be written: with each scheme of its storage, with and without a slash behind it."""
    scheme = scheme_of(place)
    others = [alias for alias, kind in _ALIASES.items() if kind == scheme]
    forms = [place, *(f"{alias}{place.removeprefix(scheme)}" for alias in others)]
    forms += [f"file:{place}", f"file://{place}"] if scheme == "file" else []
    return (*forms, *(f"{form}/" for form in forms))


def path_aliases(path: str) -> tuple[str, ...]:
    """The path without scheme and authority, as it is and percent-decoded once.

    In both, double slashes, `.` and `..` segments are resolved, and characters are composed (NFC). Two paths that share
    one of these may be the same file: sufficient to keep a file, never to delete one.
    """
    key = "/" + split_place(path)[2].lstrip("/")
    if key.isascii() and not any(part in key for part in ("%", "//", "/.")):
        return (key,)
    decoded = (key, unquote(key)) if "%" in key else (key,)
    return tuple(dict.fromkeys(unicodedata.normalize("NFC", posixpath.normpath(path)) for path in decoded))


def key_in_place(path: str) -> str:
    """The path of the place without scheme and authority, as it sorts among others of its storage."""
    return "/" + split_place(path)[2].lstrip("/")


def split_place(path: str) -> tuple[str, str, str]:
    """Scheme, authority and path of the location: `file`, "" and `/x` for local files."""
    place = normalise(path)
    scheme = scheme_of(place)
    if scheme == "file" and not place.startswith("file:"):
        return scheme, "", place
    authority, slash, key = place.partition("://")[2].partition("/")
    return scheme, authority, slash + key


def scheme_of(path: str) -> str:
    """The scheme of a normalised path, `file` for a local one."""
    scheme, separator, _ = path.partition("://")
    return scheme if separator and not path.startswith("/") else "file"


def is_local(path: str) -> bool:
    """Whether a path, however written, lies in a file system of this machine."""
    return scheme_of(normalise(path)) == "file"


def is_within(path: str, location: str) -> bool:
    """Whether a path is a location or lies below it, by whole segments."""
    return lies_in(normalise(path), normalise(location))


def lies_in(place: str, prefix: str) -> bool:
    """`is_within` of normalised locations."""
    return place == prefix or place.startswith(prefix if prefix.endswith("/") else prefix + "/")


def flaw_of_location(text: str) -> str | None:
    """Why a text is not a valid location (an absolute path or a URI of a known storage); None when it is."""
    place = normalise(text)
    scheme = scheme_of(place)
    if "\0" in text:
        return "it has a NUL character"
    if ".." in place.split("/"):
        return "it has a '..' segment"
    if scheme not in SCHEMES:
        return f"the storage {scheme!r} is not supported"
    if scheme == "file":
        return None if place.startswith("/") else "it is neither an absolute path nor an absolute URI"
    if place in ("hdfs://", "viewfs://"):
        return "it is everything"
    authority = place.removeprefix(f"{scheme}://").partition("/")[0]
    return None if authority or scheme in _WITH_DEFAULT_AUTHORITY else "it names no bucket"


def flaw_of_prefix(text: str) -> str | None:
    """Why a text is not a prefix that can be allowed: not a location, or a whole file system; None when it is."""
    if not text.strip():
        return "it is empty"
    flaw = flaw_of_location(text)
    return "it is everything" if flaw is None and normalise(text) == "/" else flaw


def _split(rest: str) -> tuple[str, str]:
    """Authority and path of what follows a scheme's colon; the path starts with a slash or is empty."""
    if not rest.startswith("//"):
        return "", rest if rest.startswith("/") else "/" + rest
    authority, slash, key = rest[2:].partition("/")
    return authority, slash + key


def _local(path: str) -> str:
    if not ("//" in path or "/." in path or path.startswith(".") or path.endswith("/")):
        return path  # as most are
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(segments)
