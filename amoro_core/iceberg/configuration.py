"""pyiceberg's own configuration file, as this service reads it."""

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
    """Have pyiceberg read its file as we do, in this whole process.

    It reads one when it is loaded, too, and takes the current directory's where there is no other: with this a
    malformed file is told by its name. To be called before more of pyiceberg is imported, in programs of our own.
    """
    Config._from_configuration_files = staticmethod(  # type: ignore[method-assign]  # pyiceberg has no other way in
        lambda: configuration_file() or None
    )


#: What strictyaml raises for what is not YAML: for characters that YAML does not have it stumbles over its own error.
UNPARSABLE = (strictyaml.YAMLError, AttributeError, RecursionError)

_MEND = "Fix the file, or set PYICEBERG_HOME to the directory of another."


def configuration_file() -> dict[str, Any]:
    """What pyiceberg's file says: the first one of $PYICEBERG_HOME and the home directory that says anything.

    Never one of the current directory, which may be anybody's. Raises InvalidSettings for a malformed one.
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
    """The settings of a file. Kept: it is asked for at each look at a table, and parsing takes milliseconds."""
    try:
        found = strictyaml.load(text).data
    except UNPARSABLE as error:
        raise InvalidSettings(f"{path} can't be read: {_problem(error)}", hint=_MEND) from error
    if not _COMMENT.sub("", text).strip():
        return {}  # strictyaml takes it for a text
    if not isinstance(found, Mapping):
        raise InvalidSettings(f"{path} does not hold settings by key")
    return found


def _problem(error: Exception) -> str:
    """What is wrong and in which line; the parser's own text shows lines of the file, which may hold secrets."""
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f" in line {mark.line + 1}"
    return briefly(f"{getattr(error, 'problem', None) or 'it is not YAML'}{where}")


def _with_lower_keys(found: Mapping[str, Any]) -> dict[str, Any]:
    """pyiceberg's keys know no case."""
    return {
        key.lower(): _with_lower_keys(value) if isinstance(value, Mapping) else value for key, value in found.items()
    }
