"""pyiceberg's own configuration file, read safely."""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import strictyaml
from pyiceberg.utils.config import Config

from amoro_core.errors import InvalidSettings
from amoro_core.iceberg.saying import said
from amoro_core.model.texts import briefly

_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)


def confine_pyiceberg() -> None:
    """Make pyiceberg read its file through `configuration_file`, in this whole process.

    By itself it reads one when imported, and falls back to the current directory's; with this, a malformed file is also
    reported by its name. Call it in our own programs before more of pyiceberg is imported.
    """
    Config._from_configuration_files = staticmethod(  # type: ignore[method-assign]  # pyiceberg has no other way in
        lambda: configuration_file() or None
    )


#: What strictyaml raises for invalid YAML; for invalid characters, making its own error fails.
UNPARSABLE = (strictyaml.YAMLError, AttributeError, RecursionError)

_MEND = "Fix the file, or set PYICEBERG_HOME to the directory of another."


def configuration_file() -> dict[str, Any]:
    """The content of pyiceberg's file: the first non-empty one in $PYICEBERG_HOME or the home directory.

    Never one in the current directory, which may be anybody's. Raises InvalidSettings for a malformed one.
    """
    for directory in (os.environ.get("PYICEBERG_HOME"), os.path.expanduser("~")):
        path = Path(directory, ".pyiceberg.yaml") if directory else None
        if path is None or not path.is_file():
            continue
        try:
            found = _parsed(path, path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, OSError) as error:
            raise InvalidSettings(f"{path} can't be read: {said(error)}", hint=_MEND) from error
        if found:
            return _with_lower_keys(found)
    return {}


@lru_cache(maxsize=4)
def _parsed(path: Path, text: str) -> Mapping[str, Any]:
    """The settings of a file. Cached: they are needed at each refresh of a table, and parsing takes milliseconds."""
    try:
        found = strictyaml.load(text).data
    except UNPARSABLE as error:
        raise InvalidSettings(f"{path} can't be read: {_problem(error)}", hint=_MEND) from error
    if not _COMMENT.sub("", text).strip():
        return {}  # strictyaml would parse it as a string
    if not isinstance(found, Mapping):
        raise InvalidSettings(f"{path} does not hold settings by key")
    return found


def _problem(error: Exception) -> str:
    """What is wrong, and in which line; the parser's own message quotes the file, which may contain secrets."""
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f" in line {mark.line + 1}"
    return briefly(f"{getattr(error, 'problem', None) or 'it is not YAML'}{where}")


def _with_lower_keys(found: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with lower-case keys: pyiceberg's are case-insensitive."""
    return {
        key.lower(): _with_lower_keys(value) if isinstance(value, Mapping) else value for key, value in found.items()
    }
