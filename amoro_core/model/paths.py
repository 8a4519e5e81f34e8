"""Locations of files as texts. Nothing here looks at a file system."""

import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


def normalise(path: str) -> str:
    """One spelling for each place: `/x` for local files however they are written, `s3://` for each of its schemes.

    Percent signs and `..` stay as they are.
    """
    scheme = _SCHEME.match(path)
    if scheme is None:
        return _local(path)
    name, rest = scheme[1].lower(), path[scheme.end() :]
    authority, slash, key = rest[2:].partition("/") if rest.startswith("//") else ("", "/", rest[1:])
    if name == "file" and authority in ("", "localhost"):
        return _local(slash + key)
    return f"{_ALIASES.get(name, name)}://{authority}{slash}{key}".rstrip("/")


def _local(path: str) -> str:
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(segments)
