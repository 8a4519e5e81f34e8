"""Sources of settings: the environment over the file, through pydantic-settings; and the file's JSON Schema."""

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema, create_model
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from amoro_core.errors import InvalidSettings
from amoro_core.model.paths import flaw_of_prefix
from amoro_core.model.processes import CatalogRules
from amoro_core.model.quantities import parse_duration
from amoro_core.model.secrets import MASK, is_secret
from amoro_core.settings import KEYS, Settings, written

_CATALOGS = "catalogs"
_RULES = tuple[CatalogRules, ...]
_MOST_DIGITS = 19  # Python refuses to read thousands of them
_DURATION = r"^(\d+(\.\d+)?(ms|s|min|m|h|d))+$"
_SIZE = r"^(0|\d+(\.\d+)?\s*([kKmMgGtT]([iI]?[bB])?|[bB]))$"
_MEND = "Write a key, a colon and a value on each line, such as port: 1261."
_MEND_VALUE = "Give it such a value, or leave it out for its default."


def load_settings(home: Path, config: Path | None, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a state directory: the environment's AMORO_KEY over `amoro.yaml` in it, or the file named.

    Raises InvalidSettings naming source, key and value of a wrong value, or two contradicting values; an unknown key is
    an error.
    """
    file, path = _File(home, config), config or home / "amoro.yaml"
    said = _Environment(environment)
    origins = {
        **{KEYS[key]: f"file {path}" for key in file.found},
        **{KEYS[key]: f"environment {variable_of(key)}" for key in said.found},
    }
    # Values with keys of their own would be mixed.
    file.found = {key: value for key, value in file.found.items() if key not in said.found}
    sources: dict[str, Any] = {"environment": said, "file": file}
    try:
        model = _model()(**sources)
    except ValidationError as error:
        raise _malformed(error, origins, {**file.found, **said.found}) from error
    said_values = {name: getattr(model, name) for name in origins}
    return replace(Settings(), **said_values, origins=origins).checked()


def variable_of(key: str) -> str:
    """The environment variable of a key: AMORO_PORT for port."""
    return f"AMORO_{re.sub('[.-]', '_', key).upper()}"


def file_schema() -> dict[str, Any]:
    """The JSON Schema of `amoro.yaml`; keys with a dot may also be nested."""
    schema = _model().model_json_schema(by_alias=True)
    properties: dict[str, Any] = schema["properties"]
    nested: dict[str, Any] = {}
    for key, value in properties.items():
        value.pop("title", None)
        outer, dot, inner = key.partition(".")
        if dot:
            nested.setdefault(outer, {})[inner] = value
    groups = {
        outer: {"type": "object", "properties": inner, "additionalProperties": False} for outer, inner in nested.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "amoro.yaml",
        "type": "object",
        "properties": {**properties, **groups},
        "additionalProperties": False,
    }


class _Settings(BaseSettings):
    """All keys; the given sources take precedence in their order, the defaults come last."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", populate_by_name=True, validate_default=False)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        given = init_settings.init_kwargs if isinstance(init_settings, InitSettingsSource) else {}
        return tuple(_Said(settings_cls, given[name]) for name in ("environment", "file"))


class _Said(PydanticBaseSettingsSource):
    """A source with known values by key."""

    def __init__(self, settings_cls: type[BaseSettings], source: "_Environment | _File") -> None:
        super().__init__(settings_cls)
        self._found = source.found

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._found.get(field.alias), field.alias, False

    def __call__(self) -> dict[str, Any]:
        return dict(self._found)


class _Environment:
    """The variables AMORO_KEY, parsed: a number, names separated by commas, catalogs in YAML, or text."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = {key: environment[variable_of(key)] for key in KEYS if variable_of(key) in environment}
        self.found = {key: _plain(text, _KINDS[KEYS[key]]) for key, text in named.items()}


class _File:
    """The settings file, if there is one; a given one must exist."""

    def __init__(self, home: Path, config: Path | None) -> None:
        path = config or home / "amoro.yaml"
        self.found: dict[str, Any] = {}
        try:
            text = path.read_text(encoding="utf-8")
            twice = _key_twice(yaml.compose(text, yaml.SafeLoader))
            content = yaml.safe_load(text) or {}
        except (FileNotFoundError, NotADirectoryError) as error:
            if config is None:
                return
            raise InvalidSettings(
                f"settings file {config} does not exist", hint="Name another with --config."
            ) from error
        except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:  # ValueError: a day that is none
            hint = "Check its rights." if isinstance(error, OSError) else _MEND
            raise InvalidSettings(f"settings file {path} can't be read: {_unreadable(error)}", hint=hint) from error
        if twice:
            raise InvalidSettings(f"settings file {path} has the key {twice!r} twice", hint="Leave one of them.")
        if not isinstance(content, dict):
            raise InvalidSettings(f"settings file {path} must hold keys and values", hint=_MEND)
        for key, value in _flattened(content):
            name = key.replace("_", "-")
            if name not in KEYS:
                close = difflib.get_close_matches(name, KEYS, n=1)
                hint = f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(KEYS)}."
                raise InvalidSettings(f"settings file {path} has the unknown key {key!r}", hint=hint)
            self.found[name] = value


def _unreadable(error: Exception) -> str:
    """The reason in a few words: the position, without quoting the file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem or 'it is not YAML'}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else "it is not YAML of keys and values"


def _key_twice(node: Any, are_names: bool = False) -> str:
    """A key that occurs twice in the same mapping, of which YAML would take the last; "" without one.

    `are_names`: the node's keys are names of catalogs, where a_b and a-b are different.
    """
    if not isinstance(node, yaml.MappingNode):
        return ""
    keys = [key.value if isinstance(key.value, str) else "" for key, _ in node.value]
    if not are_names:
        keys = [key.replace("_", "-") for key in keys]
    own = next((key for at, key in enumerate(keys) if key in keys[:at]), "")
    inner = zip(keys, (value for _, value in node.value), strict=True)
    return own or next((found for key, value in inner if (found := _key_twice(value, key == _CATALOGS))), "")


def _flattened(content: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Keys and values; nested keys are joined by a dot."""
    for key, value in content.items():
        if isinstance(value, dict) and value and key != _CATALOGS:
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield str(key), value


def _plain(text: str, kind: object) -> object:
    if kind is int:
        return int(text) if text.strip().isdecimal() and len(text) < _MOST_DIGITS else text
    if kind is bool:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if kind in (str, timedelta):
        return text
    if kind == _RULES:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return text
    return [item.strip() for item in text.split(",") if item.strip()]


_KINDS = {item.name: item.type for item in fields(Settings)}


@cache
def _model() -> type[_Settings]:
    described: dict[str, Any] = {}
    keys = {name: key for key, name in KEYS.items()}
    for item in fields(Settings):
        if item.name in keys:
            default = item.default if item.default is not MISSING else None
            shown = written(default) if isinstance(default, timedelta) else default
            described[item.name] = (
                _type_of(item.type, item.metadata),
                Field(default, alias=keys[item.name], json_schema_extra={"default": shown}),
            )
    made: type[_Settings] = create_model("AmoroSettings", __base__=_Settings, **described)
    return made


def _type_of(kind: Any, limits: Mapping[str, Any]) -> Any:
    if kind is timedelta:
        return Annotated[
            timedelta,
            BeforeValidator(lambda value: parse_duration(str(value))),
            WithJsonSchema({"type": "string", "pattern": _DURATION}),
        ]
    if kind is bool:
        return Annotated[bool, BeforeValidator(_required(bool, "true or false"))]
    if kind is int:
        least, most = limits["least"], limits["most"]
        return Annotated[
            int,
            BeforeValidator(_number(least, most)),
            WithJsonSchema({"type": "integer", "minimum": least, "maximum": most}),
        ]
    if kind is str and "parse" in limits:
        check = _parsed(limits["parse"], limits.get("word", _A_SIZE))
        return Annotated[str, BeforeValidator(check), WithJsonSchema(limits.get("schema", _SIZE_SCHEMA))]
    if kind is str:
        return Annotated[str, BeforeValidator(_required(str, "text"))]
    if kind == _RULES:
        return Annotated[_RULES, BeforeValidator(_catalog_rules), WithJsonSchema(_RULES_SCHEMA)]
    items = {"type": "string", **({"pattern": f"^{limits['pattern']}$"} if "pattern" in limits else {})}
    names = {"type": "array", "items": items, "minItems": 1}
    check = _names(limits.get("pattern", ".*"), limits.get("word", "names"))
    return Annotated[tuple[str, ...], BeforeValidator(check), WithJsonSchema(names)]


def _required(kind: type, word: str) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, kind):
            raise ValueError(f"expected {word}")
        return value

    return check


def _number(least: int, most: int) -> Callable[[object], object]:
    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"expected a whole number from {least} to {most}")
        return value

    return check


def _parsed(parse: Callable[[str], int], word: str) -> Callable[[object], object]:
    def check(value: object) -> object:
        try:
            parse(str(value))
        except ValueError as error:
            raise ValueError(f"expected {word}") from error
        return str(value)

    return check


def _names(pattern: str, word: str) -> Callable[[object], object]:
    fits = re.compile(pattern, re.DOTALL).fullmatch

    def check(value: object) -> object:
        if isinstance(value, list) and value and all(isinstance(one, str) and fits(one) for one in value):
            return tuple(value)
        raise ValueError(f"expected a list of {word}")

    return check


_A_SIZE = "a size such as 512MB or 2GB, or 0"
_SIZE_SCHEMA = {"type": ["string", "integer"], "pattern": _SIZE, "minimum": 0, "maximum": 0}
_RULES_SCHEMA = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {
            "allow-locations": {"type": "array", "items": {"type": "string"}},
            "strict-locations": {"type": "boolean"},
        },
        "additionalProperties": False,
    },
}


def _catalog_rules(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("expected names of catalogs, each with allow-locations or strict-locations below it")
    return tuple(_rules_of(str(name), said) for name, said in value.items())


def _rules_of(name: str, said: object) -> CatalogRules:
    if not isinstance(said, dict):
        raise ValueError(f"expected allow-locations or strict-locations below {name}")
    found = {str(key).replace("_", "-"): value for key, value in said.items()}
    if unknown := sorted(found.keys() - {"allow-locations", "strict-locations"}):
        raise ValueError(f"{name} has the unknown key {unknown[0]!r}; known are allow-locations and strict-locations")
    prefixes, strict = found.get("allow-locations", []), found.get("strict-locations", False)
    if not isinstance(prefixes, list) or not all(isinstance(one, str) for one in prefixes):
        raise ValueError(f"expected a list of locations as allow-locations of {name}")
    for prefix in prefixes:
        if flaw := flaw_of_prefix(prefix):
            raise ValueError(f"{prefix!r} among the allow-locations of {name} is not a location: {flaw}")
    if not isinstance(strict, bool):
        raise ValueError(f"expected true or false as strict-locations of {name}")
    return CatalogRules(name, tuple(prefixes), strict)


def _malformed(error: ValidationError, origins: Mapping[str, str], found: Mapping[str, object]) -> InvalidSettings:
    first = error.errors()[0]
    key = str(first["loc"][0])
    source = (
        origins[KEYS[key]].replace("file ", "settings file ", 1).replace("environment ", "environment variable ", 1)
    )
    why = first.get("ctx", {}).get("error", first["msg"])
    value = MASK if is_secret(key) else repr(found[key])
    return InvalidSettings(f"{source}: {key} has the malformed value {value}: {why}", hint=_MEND_VALUE)
