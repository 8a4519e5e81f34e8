"""pyiceberg's own configuration file, read safely, and Hadoop site files."""

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element, ParseError

import strictyaml
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring
from pyiceberg.utils.config import Config

from amoro_core.errors import InvalidArgument, InvalidSettings
from amoro_core.model.processes import SiteFile
from amoro_core.model.text_sanitizing import briefly

_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)


def confine_pyiceberg() -> None:
    """Make pyiceberg read its file through `configuration_file`, in this whole process.

    By itself it reads one when imported, and falls back to the current directory's. Call it before more of pyiceberg is
    imported.
    """
    Config._from_configuration_files = staticmethod(  # type: ignore[method-assign]  # pyiceberg has no other way in
        lambda: configuration_file() or None
    )


#: What strictyaml raises for invalid YAML; for invalid characters, making its own error fails.
UNPARSABLE = (strictyaml.YAMLError, AttributeError, RecursionError)

_MEND = "Fix the file, or set PYICEBERG_HOME to the directory of another."


def configuration_file() -> dict[str, Any]:
    """The first non-empty pyiceberg file in $PYICEBERG_HOME or the home directory; never one in the current directory,
    which may be anybody's. Raises InvalidSettings for a malformed one."""
    for directory in (os.environ.get("PYICEBERG_HOME"), os.path.expanduser("~")):
        path = Path(directory, ".pyiceberg.yaml") if directory else None
        if path is None or not path.is_file():
            continue
        try:
            parsed = _parsed(path, path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, OSError) as error:
            # It imports pyiceberg.catalog, which reads pyiceberg's file: `confine_pyiceberg` comes first.
            from amoro_core.iceberg.catalog.errors import error_text

            raise InvalidSettings(f"{path} can't be read: {error_text(error)}", hint=_MEND) from error
        if parsed:
            return _with_lower_keys(parsed)
    return {}


@lru_cache(maxsize=4)
def _parsed(path: Path, text: str) -> Mapping[str, Any]:
    """The settings of a file, cached: they are needed at each refresh of a table, and parsing takes milliseconds."""
    try:
        result = strictyaml.load(text).data
    except UNPARSABLE as error:
        raise InvalidSettings(f"{path} can't be read: {_problem(error)}", hint=_MEND) from error
    if not _COMMENT.sub("", text).strip():
        return {}  # strictyaml would parse it as a string
    if not isinstance(result, Mapping):
        raise InvalidSettings(f"{path} does not hold settings by key")
    return result


def _problem(error: Exception) -> str:
    """What is wrong, and in which line; the parser's own message quotes the file, which may contain secrets."""
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f" in line {mark.line + 1}"
    return briefly(f"{getattr(error, 'problem', None) or 'it is not YAML'}{where}")


def _with_lower_keys(content: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with lower-case keys: pyiceberg's are case-insensitive."""
    return {
        key.lower(): _with_lower_keys(value) if isinstance(value, Mapping) else value for key, value in content.items()
    }


#: Configuration files are a few kB; larger ones are refused.
LARGEST_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(xml|ya?ml)")
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
_AZURE_KEY = re.compile(r"fs\.azure\.account\.key\.([^.]+)\..+")
#: As in Hadoop: the limit for values that refer to each other.
_SUBSTITUTIONS = 20

_RENAMED = {
    "hive.metastore.uris": "uri",
    "hive.metastore.warehouse.dir": "warehouse",
    "hive.metastore.sasl.enabled": "hive.kerberos-authentication",
    "fs.s3a.endpoint": "s3.endpoint",
    "fs.s3a.endpoint.region": "s3.region",
    "fs.s3a.access.key": "s3.access-key-id",
    "fs.s3a.secret.key": "s3.secret-access-key",
    "fs.s3a.session.token": "s3.session-token",
    "fs.s3a.assumed.role.arn": "s3.role-arn",
}


def _default_file_system(value: str) -> Mapping[str, str]:
    parts = urlsplit(value)
    if parts.scheme != "hdfs" or not parts.hostname:
        return {}
    return {"hdfs.host": parts.hostname, **({"hdfs.port": str(parts.port)} if parts.port else {})}


_TRANSLATED: dict[str, Callable[[str], Mapping[str, str]]] = {
    "fs.s3a.path.style.access": lambda value: {
        "s3.force-virtual-addressing": "false" if value.strip().lower() == "true" else "true"
    },
    "hive.metastore.kerberos.principal": lambda value: {"hive.kerberos-service-name": value.partition("/")[0]},
    "fs.defaultFS": _default_file_system,
    "fs.default.name": _default_file_system,
}


def read_site(name: str, content: str) -> SiteFile:
    """The file with the properties derived from it.

    XML is Hadoop's `<configuration>`; YAML is a flat mapping of pyiceberg's own properties. Raises InvalidArgument for
    another name or form, for more than a megabyte, and for XML that declares a document type or entities; the message
    never contains a value.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name!r} can't be the name of a configuration file", hint="Such as hive-site.xml, core-site.xml, s3.yaml."
        )
    if len(content.encode()) > LARGEST_BYTES:
        raise InvalidArgument(f"{name} is larger than {LARGEST_BYTES} bytes: it is not a configuration file")
    properties = _from_hadoop(_xml(name, content)) if name.endswith(".xml") else _yaml(name, content)
    return SiteFile(name, content, tuple(sorted(properties.items())))


def _xml(name: str, content: str) -> dict[str, str]:
    try:
        root: Element = fromstring(content, forbid_dtd=True)
    except DefusedXmlException as error:
        raise InvalidArgument(f"{name} declares a document type or entities, which are never read") from error
    except (ParseError, ValueError) as error:
        raise InvalidArgument(f"{name} is not XML: {briefly(str(error))}") from error
    if root.tag != "configuration":
        raise InvalidArgument(f"{name} is not a Hadoop configuration: its root is <{root.tag}>, not <configuration>")
    result = {}
    for element in root.iter("property"):
        key = (element.findtext("name") or "").strip()
        if not key:
            raise InvalidArgument(f"{name} has a <property> without a <name>")
        result[key] = (element.findtext("value") or "").strip()
    return result


def _yaml(name: str, content: str) -> dict[str, str]:
    try:
        result = strictyaml.load(content).data
    except UNPARSABLE as error:
        raise InvalidArgument(f"{name} is not plain YAML: {getattr(error, 'problem', '') or 'malformed'}") from error
    if not isinstance(result, dict) or not all(isinstance(value, str) for value in result.values()):
        raise InvalidArgument(f"{name} must hold keys and values, nothing nested")
    return result


def _from_hadoop(raw: Mapping[str, str]) -> dict[str, str]:
    result: dict[str, str] = {}
    for key, text in raw.items():
        value = _expanded(text, raw)
        if key in _RENAMED:
            result[_RENAMED[key]] = value
        elif key in _TRANSLATED:
            result |= _TRANSLATED[key](value)
        elif match := _AZURE_KEY.fullmatch(key):
            result |= {"adls.account-name": match[1], "adls.account-key": value}
    return {key: value for key, value in result.items() if value}


def _expanded(text: str, raw: Mapping[str, str]) -> str:
    """The value with `${key}` replaced by that key's value, up to the limit; undefined keys are kept."""
    for _ in range(_SUBSTITUTIONS):
        match = _VARIABLE.search(text)
        if match is None or match[1] not in raw:
            break
        text = text[: match.start()] + raw[match[1]] + text[match.end() :]
    return text
