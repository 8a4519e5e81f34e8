"""Messages of libraries' errors in one line: what was expected and what was found, without SQL, code or manuals."""

import json
import re
from typing import Any

import pydantic
from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchPropertyException, NotInstalledError

from amoro_core.model.texts import briefly

_FOUND = 80  # characters quoted of what was found
_REST = re.compile(r"RESTError (\d+): Received unexpected JSON Payload: (.*?)(?:, errors: [^\n]*)?", re.DOTALL)
_BEGINS = "{[\"'"  # how JSON begins
#: Errors whose message is clear without their class name.
_SPEAK_FOR_THEMSELVES = (ValueError, NotInstalledError, NoSuchIcebergTableError, NoSuchPropertyException)
#: What urllib3 puts before a reason: the repr of an object, and errno.
_AROUND = re.compile(r"^(?:<[^>]*>|\w+\(host=[^)]*\)): |\[Errno -?\d+\] ")


def said(error: Exception) -> str:
    """The error in one line of a few hundred characters, to follow a colon."""
    within = (
        error if isinstance(error, pydantic.ValidationError) else error.__cause__
    )  # pyiceberg's has it as its cause
    if isinstance(within, pydantic.ValidationError):
        return _of_pydantic(within)
    if isinstance(error, UnicodeDecodeError):
        return f"expected UTF-8, found byte 0x{error.object[error.start]:02x} at {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return _no_json(error.doc, error.msg)
    driver = getattr(error, "orig", None)  # SQLAlchemy's, without the statement around it
    if isinstance(driver, Exception):
        return briefly(f"the database says: {driver}")
    if rest := _REST.fullmatch(str(error)):
        return f"expected JSON, found {_shown(rest[2])} with status {rest[1]}"
    reason = getattr(error.args[0] if error.args else None, "reason", None)  # requests', of urllib3
    if isinstance(reason, Exception):
        return f"no connection: {briefly(_unwrapped(str(reason)))}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    lines = [line for line in str(error).splitlines() if line.strip()]
    kind = "" if lines and type(error) in _SPEAK_FOR_THEMSELVES else type(error).__name__
    return briefly(": ".join(filter(None, (kind, *lines[:1]))))


def _of_pydantic(error: pydantic.ValidationError) -> str:
    """The first problem, and how many more there are."""
    first, *more = error.errors(include_url=False)
    found = first["input"]
    if first["type"] == "json_invalid":
        text = found.decode(errors="replace") if isinstance(found, bytes) else str(found)
        return _no_json(text, str(first.get("ctx", {}).get("error", "")))
    # A number is the format version by which the kind of metadata was chosen.
    place = ".".join(str(part) for part in first["loc"] if part not in (1, 2, 3, "1", "2", "3"))
    at = f" at {place}" if place else ""
    rest = f" (and {len(more)} more)" if more else ""
    if first["type"] == "missing":
        return f"expected the field {place}, found none{rest}"
    message = briefly(first["msg"])
    if message.startswith("Input should be "):
        return f"expected {message.removeprefix('Input should be ')}{at}, found {_shown(found)}{rest}"
    return f"{message}{at}{rest}"


def _no_json(text: str, why: str) -> str:
    start = text.strip()
    if not start:
        return "expected JSON, found nothing"
    if start[0] not in _BEGINS:
        return f"expected JSON, found {_shown(start)}"
    return f"expected JSON, found it broken: {briefly(why)}"


def _shown(found: Any) -> str:
    text = found if isinstance(found, str) else repr(found)
    return f"'{briefly(text, _FOUND)}'"


def _unwrapped(text: str) -> str:
    while (shorter := _AROUND.sub("", text)) != text:
        text = shorter
    return text
