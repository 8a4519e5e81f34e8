"""Settings of a coordinator: flag, then environment, then file, then default. Unknown keys are errors."""

import difflib
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from amoro_core.errors import InvalidSettings
from amoro_core.model.quantities import parse_duration


@dataclass(frozen=True, slots=True)
class Settings:
    """What may stand in `amoro.yaml`; durations are written 30s, 10m, 1h."""

    host: str = "127.0.0.1"
    port: int = 1261
    heartbeat_interval: timedelta = timedelta(seconds=10)
    heartbeat_timeout: timedelta = timedelta(seconds=60)
    schedule_to_ack: timedelta = timedelta(seconds=30)
    start_to_close: timedelta = timedelta(hours=2)
    groups: tuple[str, ...] = field(default=("default",))


def load_settings(home: Path, config: Path | None) -> Settings:
    """The settings of a state directory: `amoro.yaml` in it, or the file that is named.

    Raises InvalidSettings that names file, key and value.
    """
    path = config or home / "amoro.yaml"
    if not path.exists():
        if config is not None:
            raise InvalidSettings(f"settings file {config} does not exist")
        return Settings()
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"settings file {path} can't be read: {error}") from error
    if not isinstance(content, dict):
        raise InvalidSettings(f"settings file {path} must hold keys and values")
    known = {item.name.replace("_", "-"): item for item in fields(Settings)}
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).replace("_", "-")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(known)}."
            raise InvalidSettings(f"settings file {path} has the unknown key {key!r}", hint=hint)
        values[known[name].name] = _parse(path, name, value, known[name].type)
    return Settings(**values)


def _parse(path: Path, key: str, value: object, kind: object) -> Any:
    try:
        if kind is timedelta:
            return parse_duration(str(value))
        if kind is int:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
                raise ValueError("expected a port from 0 to 65535")
            return value
        if kind is str:
            if not isinstance(value, str):
                raise ValueError("expected text")
            return value
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise ValueError("expected a list of names")
        return tuple(value)
    except ValueError as error:
        raise InvalidSettings(f"settings file {path}: {key} has the malformed value {value!r}: {error}") from error
