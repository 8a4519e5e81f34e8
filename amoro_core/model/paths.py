"""Locations of files as texts. Nothing here looks at a file system."""

import re

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_LOCAL_HOSTS = ("", "localhost")


def normalise(path: str) -> str:
    """The one spelling of a place: `/x` for local files however they are written, `s3://` for each of its schemes.

    Purely textual; `..` segments and percent signs stay as they are.
    """
    match = None if path.startswith("/") else _URI.fullmatch(path)
    if match is None:
        return _local(path)
    scheme, rest = match[1].lower(), match[2]
    authority, key = _split(rest)
    if scheme == "file" and authority in _LOCAL_HOSTS:
        return _local(key)
    return f"{_ALIASES.get(scheme, scheme)}://{authority}{key.rstrip('/')}"


def _split(rest: str) -> tuple[str, str]:
    """Authority and path of what follows a scheme's colon; the path starts with a slash or is empty."""
    if not rest.startswith("//"):
        return "", rest if rest.startswith("/") else "/" + rest
    authority, slash, key = rest[2:].partition("/")
    return authority, slash + key


def _local(path: str) -> str:
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(segments)
