"""Settings of a coordinator: flag, then environment, then file, then default. Unknown keys are errors."""

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from amoro_core.errors import InvalidSettings
from amoro_core.model.quantities import parse_duration
from amoro_core.model.trust import Certificates


def _dotted(key: str, default: Any, **limits: int) -> Any:
    """A field whose key is not its name: Amoro's own."""
    return field(default=default, metadata={"key": key, **limits})


@dataclass(frozen=True, slots=True)
class Settings:
    """What may stand in `amoro.yaml`; durations are written 30s, 10m, 1h."""

    host: str = "127.0.0.1"
    port: int = field(default=1261, metadata={"least": 0, "most": 65535})
    insecure: bool = False  # listen beyond loopback although nothing is encrypted
    tls_certificate: str = ""  # a file in PEM; with it and its key the address is encrypted
    tls_key: str = ""
    tls_client_ca: str = ""  # with it only clients that have a certificate of this authority are let in
    heartbeat_interval: timedelta = timedelta(seconds=10)
    heartbeat_timeout: timedelta = timedelta(seconds=60)
    schedule_to_ack: timedelta = timedelta(seconds=30)
    start_to_close: timedelta = timedelta(hours=2)
    groups: tuple[str, ...] = field(default=("default",))
    history_keep: timedelta = timedelta(days=30)
    blocker_timeout: timedelta = timedelta(minutes=1)  # how long a blocker holds unless it says otherwise
    explore_interval: timedelta = _dotted("refresh-external-catalogs.interval", timedelta(minutes=3))
    explore_threads: int = _dotted("refresh-external-catalogs.thread-count", 10, least=1, most=1000)
    explore_queue: int = _dotted("refresh-external-catalogs.queue-size", 1_000_000, least=1, most=2**31)
    #: Where the values come from, by field; what is not there is a default.
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def with_values(self, origin: str, **values: object) -> "Settings":
        """These settings with other values, which are said by `origin`."""
        changes: dict[str, Any] = {**values, "origins": {**self.origins, **dict.fromkeys(values, origin)}}
        return replace(self, **changes)

    def described(self) -> tuple[tuple[str, str, str], ...]:
        """Each key as it stands in `amoro.yaml`, its value as it is written there, and where that comes from."""
        return tuple(
            (key, _written(getattr(self, name)), self.origins.get(name, "default")) for key, name in _KEYS.items()
        )

    def certificates(self) -> Certificates | None:
        """What to listen by TLS with; None when nothing says so. Raises InvalidSettings."""
        named = {"tls-certificate": self.tls_certificate, "tls-key": self.tls_key}
        missing = [key for key, value in named.items() if not value]
        if not missing:
            client_ca = Path(self.tls_client_ca).expanduser() if self.tls_client_ca else None
            return Certificates(Path(self.tls_certificate).expanduser(), Path(self.tls_key).expanduser(), client_ca)
        if len(missing) == len(named) and not self.tls_client_ca:
            return None
        raise InvalidSettings(
            f"TLS needs {missing[0]} too", hint="Name files in PEM with tls-certificate and tls-key in amoro.yaml."
        )


_KEYS = {
    item.metadata.get("key", item.name.replace("_", "-")): item.name
    for item in fields(Settings)
    if item.name != "origins"
}
_LIMITS = {item.name: (item.metadata["least"], item.metadata["most"]) for item in fields(Settings) if item.type is int}
_KINDS = {item.name: item.type for item in fields(Settings)}


def load_settings(home: Path, config: Path | None, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a state directory: the environment's AMORO_KEY over `amoro.yaml` in it, or the file named.

    Raises InvalidSettings that names where the wrong value stands, key and value.
    """
    settings = _from_file(home, config)
    for key, name in _KEYS.items():
        variable = f"AMORO_{re.sub('[.-]', '_', key).upper()}"
        if variable in environment:
            value = _parse(f"environment variable {variable}", key, _plain(environment[variable], name), name)
            settings = settings.with_values(f"environment {variable}", **{name: value})
    return settings


def _from_file(home: Path, config: Path | None) -> Settings:
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
    values: dict[str, Any] = {}
    for key, value in _flattened(content):
        name = str(key).replace("_", "-")
        if name not in _KEYS:
            close = difflib.get_close_matches(name, _KEYS, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(_KEYS)}."
            raise InvalidSettings(f"settings file {path} has the unknown key {key!r}", hint=hint)
        values[_KEYS[name]] = _parse(f"settings file {path}", name, value, _KEYS[name])
    return Settings().with_values(f"file {path}", **values)


def _plain(text: str, name: str) -> object:
    """The text of a variable as a file's value: a number, names between commas, or text."""
    if _KINDS[name] is int:
        return int(text) if text.strip().isdecimal() else text
    if _KINDS[name] is bool:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if _KINDS[name] in (str, timedelta):
        return text
    return [item.strip() for item in text.split(",") if item.strip()]


def _written(value: object) -> str:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
            if seconds >= size and seconds % size == 0:
                return f"{seconds / size:g}{unit}"
        return f"{seconds:g}s"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _flattened(content: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Keys and values; what stands below another key has both, with a dot between."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield str(key), value


def _parse(source: str, key: str, value: object, name: str) -> Any:
    kind = _KINDS[name]
    try:
        if kind is timedelta:
            return parse_duration(str(value))
        if kind is bool:
            if not isinstance(value, bool):
                raise ValueError("expected true or false")
            return value
        if kind is int:
            least, most = _LIMITS[name]
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ValueError(f"expected a whole number from {least} to {most}")
            return value
        if kind is str:
            if not isinstance(value, str):
                raise ValueError("expected text")
            return value
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise ValueError("expected a list of names")
        return tuple(value)
    except ValueError as error:
        raise InvalidSettings(f"{source}: {key} has the malformed value {value!r}: {error}") from error
