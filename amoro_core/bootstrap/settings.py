"""Settings of a coordinator, with their origins."""

import difflib
import ipaddress
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from amoro_core.errors import InvalidArgument, InvalidSettings
from amoro_core.model.listeners import Webhook, parse_listeners
from amoro_core.model.paths import flaw_of_prefix
from amoro_core.model.principals import Certificates, ProviderTerms, is_safe_url, parse_rule
from amoro_core.model.processes import CatalogRules
from amoro_core.model.properties import parse_duration, parse_memory
from amoro_core.model.tables import LONGEST_HOLD
from amoro_core.model.text_sanitizing import MASK, is_secret


def _dotted(key: str, default: Any, **limits: int) -> Any:
    """A field whose key is not its name: Amoro's own."""
    return field(default=default, metadata={"key": key, **limits})


def parse_size(text: str) -> int:
    """The bytes in a text like "512MB" or "2GB"; "0" is none. Raises ValueError, for a number without unit too."""
    if text.strip() == "0":
        return 0
    if not text.strip()[-1:].isalpha():
        raise ValueError(f"{text!r} has no unit")
    return parse_memory(text)


@dataclass(frozen=True, slots=True)
class Settings:
    """The keys of `amoro.yaml`; durations are written 30s, 10m, 1h."""

    host: str = "127.0.0.1"
    port: int = field(default=1261, metadata={"least": 0, "most": 65535})
    http_host: str = "127.0.0.1"
    http_port: int = field(default=1630, metadata={"least": 0, "most": 65535})  # of pages and REST; 0: none
    #: Names that a Host header may say, beside loopback's and the address.
    http_hosts: tuple[str, ...] = field(default=(), metadata={"pattern": r"[^\s/]{1,255}", "word": "names of hosts"})
    mcp_writes: bool = False  # whether /mcp offers tools that write, to operators
    #: Addresses or networks whose X-Forwarded-For and -Proto count.
    trusted_proxies: tuple[str, ...] = field(default=(), metadata={"pattern": r"\S{1,100}", "word": "addresses"})
    insecure: bool = False  # listen beyond loopback although nothing is encrypted
    tls_certificate: str = ""  # a file in PEM; with it and its key the address is encrypted
    tls_key: str = ""
    tls_client_ca: str = ""  # with it only clients that have a certificate of this authority are let in
    oidc_issuer: str = ""  # of the OpenID provider whose people may log in; "": none
    oidc_client_id: str = ""
    oidc_client_secret: str = ""  # env:NAME or file:PATH, never the secret itself; "": a public client
    oidc_name_claim: str = "sub"
    oidc_role_claim: str = "groups"
    #: VALUE=ROLE or VALUE=operator PATTERN; the first that fits counts.
    oidc_roles: tuple[str, ...] = field(default=(), metadata={"pattern": ".{1,500}", "word": "VALUE=ROLE"})
    oidc_scopes: tuple[str, ...] = field(
        default=("openid", "profile", "email"),
        metadata={"pattern": r"[\x21\x23-\x5b\x5d-\x7e]{1,255}", "word": "scopes"},
    )
    heartbeat_interval: timedelta = timedelta(seconds=10)
    heartbeat_timeout: timedelta = timedelta(seconds=60)
    schedule_to_ack: timedelta = timedelta(seconds=30)
    start_to_close: timedelta = timedelta(hours=2)
    groups: tuple[str, ...] = field(
        default=("default",), metadata={"pattern": r"\S{1,255}", "word": "names of 1 to 255 characters without spaces"}
    )
    #: Classes that catalogs and tables may name in their -impl properties.
    allowed_classes: tuple[str, ...] = field(
        default=(), metadata={"pattern": r"\w+(\.\w+)+", "word": "classes, such as package.module.Class"}
    )
    strict_locations: bool = False  # in every catalog
    catalogs: tuple[CatalogRules, ...] = ()  # each name once
    listeners: tuple[Webhook, ...] = ()  # each name once
    history_keep: timedelta = timedelta(days=30)
    #: Of what is known of large tables in memory, all together; 0: nothing is kept between two looks.
    planning_memory: str = field(default="1GB", metadata={"size": True})
    table_series: bool = True  # whether tables' numbers are kept over time
    terminal_enabled: bool = _dotted("terminal.enabled", False)  # whether operators may send SQL
    terminal_memory: str = field(default="2GB", metadata={"key": "terminal.memory", "size": True})  # of one statement
    terminal_timeout: timedelta = _dotted("terminal.timeout", timedelta(minutes=5))
    terminal_max_sessions: int = _dotted("terminal.max-sessions", 4, least=1, most=100)  # statements at once
    terminal_result_limit: int = _dotted("terminal.result-limit", 1000, least=1, most=1_000_000)  # rows
    terminal_spark_connect: str = _dotted("terminal.spark-connect", "")  # sc://HOST:15002, for administrators; "": none
    blocker_timeout: timedelta = timedelta(minutes=1)  # how long a blocker holds unless it says otherwise
    catalog_timeout: timedelta = timedelta(seconds=60)  # of each request to a catalog, from its begin to its end
    explore_interval: timedelta = _dotted("refresh-external-catalogs.interval", timedelta(minutes=3))
    explore_threads: int = _dotted("refresh-external-catalogs.thread-count", 10, least=1, most=1000)
    explore_queue: int = _dotted("refresh-external-catalogs.queue-size", 1_000_000, least=1, most=2**31)
    maintenance_threads: int = field(default=2, metadata={"least": 1, "most": 100})  # of each catalog
    delete_rate: int = field(default=1000, metadata={"least": 1, "most": 1_000_000})  # files of a catalog in a second
    #: For each scheduled action: whether it is on, and the interval between two runs on a table.
    expire_snapshots_enabled: bool = _dotted("expire-snapshots.enabled", True)
    expire_snapshots_interval: timedelta = _dotted("expire-snapshots.interval", timedelta(hours=1))
    clean_orphan_files_enabled: bool = _dotted("clean-orphan-files.enabled", True)
    clean_orphan_files_interval: timedelta = _dotted("clean-orphan-files.interval", timedelta(days=1))
    clean_dangling_delete_files_enabled: bool = _dotted("clean-dangling-delete-files.enabled", True)
    clean_dangling_delete_files_interval: timedelta = _dotted("clean-dangling-delete-files.interval", timedelta(days=1))
    expire_data_enabled: bool = _dotted("expire-data.enabled", True)
    expire_data_interval: timedelta = _dotted("expire-data.interval", timedelta(days=1))
    auto_create_tags_enabled: bool = _dotted("auto-create-tags.enabled", True)
    auto_create_tags_interval: timedelta = _dotted("auto-create-tags.interval", timedelta(minutes=1))
    rewrite_manifests_enabled: bool = _dotted("rewrite-manifests.enabled", True)
    rewrite_manifests_interval: timedelta = _dotted("rewrite-manifests.interval", timedelta(days=1))
    compute_statistics_enabled: bool = _dotted("compute-statistics.enabled", True)
    compute_statistics_interval: timedelta = _dotted("compute-statistics.interval", timedelta(days=1))
    empty_trash_enabled: bool = _dotted("empty-trash.enabled", True)
    empty_trash_interval: timedelta = _dotted("empty-trash.interval", timedelta(hours=1))
    #: The origins of values by field; a missing one is a default.
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def planning_bytes(self) -> int:
        """The limit of what is kept in memory of all tables' live files together, by estimate."""
        return parse_size(self.planning_memory)

    def with_values(self, origin: str, **values: object) -> "Settings":
        """These settings with other values, set by `origin`."""
        changes: dict[str, Any] = {**values, "origins": {**self.origins, **dict.fromkeys(values, origin)}}
        return replace(self, **changes)

    def described(self) -> tuple[tuple[str, str, str], ...]:
        """Each key of `amoro.yaml`, its value as written there, and its origin."""
        return tuple(
            (inner, value, self.origins.get(name, "default"))
            for key, name in KEYS.items()
            for inner, value in _written_below(key, getattr(self, name))
        )

    def checked(self) -> "Settings":
        """These settings. Raises InvalidSettings for two that contradict each other, with values and origins."""
        if self.heartbeat_interval >= self.heartbeat_timeout:
            raise InvalidSettings(
                f"{self._as_set('heartbeat-interval')} is not below {self._as_set('heartbeat-timeout')}",
                hint="An optimizer that reports less often is taken for lost: lower the first or raise the second.",
            )
        if self.port == self.http_port != 0:
            raise InvalidSettings(
                f"{self._as_set('http-port')} is the same as {self._as_set('port')}", hint="Each needs its own."
            )
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise InvalidSettings(
                    f"trusted-proxies holds {proxy!r}, which is neither an address nor a network",
                    hint="Write 10.0.0.7 or 10.0.0.0/24.",
                ) from error
        if self.blocker_timeout > LONGEST_HOLD:
            raise InvalidSettings(
                f"{self._as_set('blocker-timeout')} is above {written(LONGEST_HOLD)}, the most that a blocker lasts",
                hint="Lower it; a blocker that is needed for longer is renewed.",
            )
        self.provider_terms()
        repeated = [name for at, name in enumerate(self.groups) if name in self.groups[:at]]
        if repeated:
            raise InvalidSettings(f"{self._as_set('groups')} names {repeated[0]!r} twice", hint="Leave one of them.")
        return self

    def provider_terms(self) -> ProviderTerms | None:
        """The terms of the OpenID provider; None without one. Raises InvalidSettings."""
        secret = self.oidc_client_secret
        if secret and not secret.startswith(("env:", "file:")):
            raise InvalidSettings(
                "oidc-client-secret holds something else than env:NAME or file:PATH; it is not shown here",
                hint="Write where the secret is, not the secret: settings are shown to administrators.",
            )
        if not self.oidc_issuer:
            return None
        if not is_safe_url(self.oidc_issuer):
            raise InvalidSettings(
                f"{self._as_set('oidc-issuer')} is not the https address of a provider",
                hint="Write it as the provider does, such as https://login.example.com/realms/data.",
            )
        if missing := [key for key in ("oidc-client-id", "oidc-roles") if not getattr(self, KEYS[key])]:
            raise InvalidSettings(
                f"{self._as_set('oidc-issuer')} needs {missing[0]} too", hint="See docs/howto/roles.md for all of them."
            )
        try:
            rules = tuple(map(parse_rule, self.oidc_roles))
        except InvalidArgument as error:
            raise InvalidSettings(f"oidc-roles: {error.message}", hint=error.hint) from error
        scopes = tuple(dict.fromkeys(("openid", *self.oidc_scopes)))
        return ProviderTerms(
            self.oidc_issuer, self.oidc_client_id, self.oidc_name_claim, self.oidc_role_claim, scopes, rules
        )

    def _as_set(self, key: str) -> str:
        name = KEYS[key]
        return f"{key} {written(getattr(self, name))} ({self.origins.get(name, 'default')})"

    def rules_of(self, catalog: str) -> CatalogRules:
        """The rules for that catalog, including those for all catalogs."""
        own = next((item for item in self.catalogs if item.name == catalog), CatalogRules(catalog))
        return replace(own, strict_locations=own.strict_locations or self.strict_locations)

    def action_intervals(self) -> Mapping[str, timedelta | None]:
        """The intervals of scheduled actions by name; None for one that is off."""
        intervals: dict[str, timedelta | None] = {}
        for key, name in KEYS.items():
            action, dot, last = key.rpartition(".")
            if dot and last == "interval" and f"{action}.enabled" in KEYS:
                intervals[action] = getattr(self, name) if getattr(self, KEYS[f"{action}.enabled"]) else None
        return intervals

    def certificates(self) -> Certificates | None:
        """The certificates for TLS; None without TLS. Raises InvalidSettings."""
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


#: Fields by key.
FIELDS = {
    item.metadata.get("key", item.name.replace("_", "-")): item for item in fields(Settings) if item.name != "origins"
}
#: Names of fields by key.
KEYS = {key: item.name for key, item in FIELDS.items()}


def _written_below(key: str, value: object) -> Iterator[tuple[str, str]]:
    """The key with its value; for catalogs, the nested keys with theirs; each listener."""
    if not isinstance(value, tuple) or not any(isinstance(item, (CatalogRules, Webhook)) for item in value):
        yield key, written(value)
        return
    for rules in value:
        if isinstance(rules, Webhook):
            yield f"{key}.{rules.name}", f"{rules.target}, secret {rules.secret}"
            continue
        yield f"{key}.{rules.name}.allow-locations", written(rules.allow_locations)
        yield f"{key}.{rules.name}.strict-locations", written(rules.strict_locations)


def written(value: object) -> str:
    """The value as written in `amoro.yaml`."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
            if seconds >= size and seconds % size == 0:
                return f"{seconds / size:g}{unit}"
        return f"{seconds:g}s"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


_CATALOGS = "catalogs"
_MOST_DIGITS = 19  # Python refuses to read thousands of them
_WRITE_KEYS = "Write a key, a colon and a value on each line, such as port: 1261."
_WRITE_VALUE = "Give it such a value, or leave it out for its default."


def load_settings(home: Path, config: Path | None, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a state directory: the environment's AMORO_KEY over `amoro.yaml` in it, or the file named.

    Raises InvalidSettings naming source, key and value of a wrong value, or two contradicting values; an unknown key is
    an error.
    """
    path = config or home / "amoro.yaml"
    raw = {key: (f"file {path}", value) for key, value in _read_file(path, is_required=config is not None).items()}
    for key in KEYS:
        variable = variable_of(key)
        if variable in environment:
            raw[key] = (f"environment {variable}", _plain(environment[variable], FIELDS[key].type))
    values = {KEYS[key]: _parsed(key, value, origin) for key, (origin, value) in raw.items()}
    origins = {KEYS[key]: origin for key, (origin, _) in raw.items()}
    return replace(Settings(), **values, origins=origins).checked()


def variable_of(key: str) -> str:
    """The environment variable of a key: AMORO_PORT for port."""
    return f"AMORO_{re.sub('[.-]', '_', key).upper()}"


def _parsed(key: str, value: object, origin: str) -> Any:
    """The value of a key. Raises InvalidSettings naming origin, key and value."""
    try:
        return _PARSERS[key](value)
    except ValueError as error:
        source = re.sub("^file", "settings file", re.sub("^environment", "environment variable", origin))
        text = MASK if is_secret(key) else repr(value)
        raise InvalidSettings(f"{source}: {key} has the malformed value {text}: {error}", hint=_WRITE_VALUE) from error


def _read_file(path: Path, *, is_required: bool) -> dict[str, Any]:
    """The values in the file by key; none if there is no file and none is required. Raises InvalidSettings."""
    try:
        text = path.read_text(encoding="utf-8")
        twice = _key_twice(yaml.compose(text, yaml.SafeLoader))
        content = yaml.safe_load(text) or {}
    except (FileNotFoundError, NotADirectoryError) as error:
        if not is_required:
            return {}
        raise InvalidSettings(f"settings file {path} does not exist", hint="Name another with --config.") from error
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:  # ValueError: a day that is none
        hint = "Check its rights." if isinstance(error, OSError) else _WRITE_KEYS
        raise InvalidSettings(f"settings file {path} can't be read: {_unreadable(error)}", hint=hint) from error
    if twice:
        raise InvalidSettings(f"settings file {path} has the key {twice!r} twice", hint="Leave one of them.")
    if not isinstance(content, dict):
        raise InvalidSettings(f"settings file {path} must hold keys and values", hint=_WRITE_KEYS)
    values = {}
    for key, value in _flattened(content):
        name = key.replace("_", "-")
        if name not in KEYS:
            close = difflib.get_close_matches(name, KEYS, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(KEYS)}."
            raise InvalidSettings(f"settings file {path} has the unknown key {key!r}", hint=hint)
        values[name] = value
    return values


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
    return own or next((twice for key, value in inner if (twice := _key_twice(value, key == _CATALOGS))), "")


def _flattened(content: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Keys and values; nested keys are joined by a dot."""
    for key, value in content.items():
        if isinstance(value, dict) and value and key != _CATALOGS:
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield str(key), value


def _plain(text: str, kind: Any) -> object:
    """The value of an environment variable as it would be in the file, or the text if it is malformed."""
    if kind is int:
        return int(text) if text.strip().isdecimal() and len(text) < _MOST_DIGITS else text
    if kind is bool:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if kind in (str, timedelta):
        return text
    if kind in (tuple[CatalogRules, ...], tuple[Webhook, ...]):
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return text
    return [item.strip() for item in text.split(",") if item.strip()]


def _parser_of(kind: Any, limits: Mapping[str, Any]) -> Callable[[object], Any]:
    """What parses the values of a field of that type; `limits` is the field's metadata. It raises ValueError."""
    if kind is timedelta:
        return lambda value: parse_duration(str(value))
    if kind is bool:
        return partial(_of_type, bool, "true or false")
    if kind is int:
        return partial(_whole_number, limits["least"], limits["most"])
    if kind is str:
        return _size_text if "size" in limits else partial(_of_type, str, "text")
    if kind == tuple[CatalogRules, ...]:
        return _catalog_rules
    if kind == tuple[Webhook, ...]:
        return parse_listeners
    return partial(_names, limits.get("pattern", ".*"), limits.get("word", "names"))


def _of_type(kind: type, word: str, value: object) -> object:
    if not isinstance(value, kind):
        raise ValueError(f"expected {word}")
    return value


def _whole_number(least: int, most: int, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"expected a whole number from {least} to {most}")
    return value


def _size_text(value: object) -> str:
    try:
        parse_size(str(value))
    except ValueError as error:
        raise ValueError("expected a size such as 512MB or 2GB, or 0") from error
    return str(value)


def _names(pattern: str, word: str, value: object) -> tuple[str, ...]:
    fits = re.compile(pattern, re.DOTALL).fullmatch
    if isinstance(value, list) and value and all(isinstance(item, str) and fits(item) for item in value):
        return tuple(value)
    raise ValueError(f"expected a list of {word}")


def _catalog_rules(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("expected names of catalogs, each with allow-locations or strict-locations below it")
    return tuple(_rules_of(str(name), rules) for name, rules in value.items())


def _rules_of(name: str, value: object) -> CatalogRules:
    if not isinstance(value, dict):
        raise ValueError(f"expected allow-locations or strict-locations below {name}")
    rules = {str(key).replace("_", "-"): rule for key, rule in value.items()}
    if unknown := sorted(rules.keys() - {"allow-locations", "strict-locations"}):
        raise ValueError(f"{name} has the unknown key {unknown[0]!r}; known are allow-locations and strict-locations")
    prefixes, strict = rules.get("allow-locations", []), rules.get("strict-locations", False)
    if not isinstance(prefixes, list) or not all(isinstance(prefix, str) for prefix in prefixes):
        raise ValueError(f"expected a list of locations as allow-locations of {name}")
    for prefix in prefixes:
        if flaw := flaw_of_prefix(prefix):
            raise ValueError(f"{prefix!r} among the allow-locations of {name} is not a location: {flaw}")
    if not isinstance(strict, bool):
        raise ValueError(f"expected true or false as strict-locations of {name}")
    return CatalogRules(name, tuple(prefixes), strict)


_PARSERS = {key: _parser_of(item.type, item.metadata) for key, item in FIELDS.items()}
