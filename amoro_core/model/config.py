"""`self-optimizing.*` table properties as a typed configuration (names and defaults are Amoro's)."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from math import inf, nan
from typing import Any

from amoro_core.errors import InvalidArgument, TableRefused

ENABLED_KEY = "self-optimizing.enabled"
#: What the keys of a catalog's properties that are defaults for its tables begin with.
CATALOG_PREFIX = "table."

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LONG_LIMIT = 2**63
_CENTURY_MS = 36525 * 24 * 3600 * 1000


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("expected true or false")


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = _integer(text)
        if value < least:
            raise ValueError(f"expected a whole number of at least {least}")
        return value

    return parse


def _integer(text: str) -> int:
    """What Java reads as a long: Python alone would take underscores and digits of any script, too."""
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError("expected a whole number")
    value = int(text)
    if not -_LONG_LIMIT <= value < _LONG_LIMIT:
        raise ValueError("expected a whole number of at most 64 bits")
    return value


def _fraction(least: float, most: float | None = None) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text) if _NUMBER.fullmatch(text.strip()) else nan
        if not least <= value < inf or (most is not None and value > most):
            raise ValueError(f"expected a number of at least {least}" + (f" and at most {most}" if most else ""))
        return value

    return parse


def _interval(text: str) -> timedelta | None:
    """Milliseconds; a negative number means "never"."""
    value = _integer(text)
    return _duration(value) if value >= 0 else None


def _milliseconds(least: int) -> Callable[[str], timedelta]:
    whole = _whole(least)
    return lambda text: _duration(whole(text))


def _duration(milliseconds: int) -> timedelta:
    # A date plus the largest long is no date any more; a century is as good as never.
    return timedelta(milliseconds=min(milliseconds, _CENTURY_MS))


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a name")
    return text.strip()


def _optional_text(text: str) -> str | None:
    return text.strip() or None


def _property(key: str, default: str, parse: Callable[[str], Any]) -> Any:
    return field(default=parse(default), metadata={"key": key, "default": default, "parse": parse})


@dataclass(frozen=True, slots=True)
class OptimizingConfig:
    """The properties of one table that steer its optimizing; sizes in bytes."""

    group: str = _property("self-optimizing.group", "default", _text)
    quota: float = _property("self-optimizing.quota", "0.5", _fraction(0.0))
    allow_partial_commit: bool = _property("self-optimizing.allow-partial-commit", "false", _boolean)
    max_retries: int = _property("self-optimizing.execute.num-retries", "5", _whole(0))
    target_size: int = _property("self-optimizing.target-size", "134217728", _whole(1))
    max_file_count: int = _property("self-optimizing.max-file-count", "10000", _whole(2))
    max_task_size: int = _property("self-optimizing.max-task-size-bytes", "134217728", _whole(1))
    fragment_ratio: int = _property("self-optimizing.fragment-ratio", "8", _whole(1))
    min_target_size_ratio: float = _property("self-optimizing.min-target-size-ratio", "0.75", _fraction(0.0, 1.0))
    minor_trigger_file_count: int = _property("self-optimizing.minor.trigger.file-count", "12", _whole(1))
    minor_trigger_interval: timedelta | None = _property("self-optimizing.minor.trigger.interval", "3600000", _interval)
    major_trigger_duplicate_ratio: float = _property(
        "self-optimizing.major.trigger.duplicate-ratio", "0.1", _fraction(0.0)
    )
    full_trigger_interval: timedelta | None = _property("self-optimizing.full.trigger.interval", "-1", _interval)
    full_rewrite_all_files: bool = _property("self-optimizing.full.rewrite-all-files", "true", _boolean)
    filter: str | None = _property("self-optimizing.filter", "", _optional_text)
    min_plan_interval: timedelta | None = _property("self-optimizing.min-plan-interval", "60000", _interval)
    evaluation_fallback_interval: timedelta | None = _property(
        "self-optimizing.evaluation.fallback-interval", "-1", _interval
    )
    mse_tolerance: int = _property("self-optimizing.evaluation.file-size.mse-tolerance", "0", _whole(0))
    refresh_max_interval: timedelta = _property(
        "self-optimizing.refresh-table.adaptive.max-interval-ms", "0", _milliseconds(0)
    )
    refresh_increase_step: timedelta = _property(
        "self-optimizing.refresh-table.adaptive.increase-step-ms", "30000", _milliseconds(1)
    )
    row_group_merge: bool = _property("self-optimizing.rewrite.use-parquet-row-group-merge.enabled", "false", _boolean)
    row_group_merge_min_size: int = _property(
        "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes", "8388608", _whole(0)
    )
    open_file_cost: int = _property("read.split.open-file-cost", "4194304", _whole(0))

    @property
    def fragment_size(self) -> int:
        """The largest size of a fragment, in bytes (integer division, as Amoro)."""
        return self.target_size // self.fragment_ratio

    @property
    def min_target_size(self) -> int:
        """The largest size of an undersized segment, in bytes."""
        return int(self.target_size * self.min_target_size_ratio)


#: Every key that steers optimizing, with its default.
_DEFAULTS = {ENABLED_KEY: "false"} | {
    item.metadata["key"]: item.metadata["default"] for item in fields(OptimizingConfig)
}
_PREFIX = "self-optimizing."
_TAILS = [key.removeprefix(_PREFIX) for key in _DEFAULTS if key.startswith(_PREFIX)]


class Origin(StrEnum):
    """Who said a property's value."""

    TABLE = "table"
    CATALOG = "catalog"  # as a default for its tables, under `table.`
    DEFAULT = "default"
    UNKNOWN = "unknown"  # said by somebody, and no property of ours: it counts for nothing


@dataclass(frozen=True, slots=True)
class EffectiveProperty:
    """A property's value as it is written, well formed or not, and who said it."""

    key: str
    value: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Enabled:
    """Whether a table is optimized, and who said so."""

    value: bool
    origin: str


def parse_config(properties: Mapping[str, str]) -> OptimizingConfig:
    """The configuration that the properties say; what they lack has Amoro's default.

    Raises TableRefused("configuration") that names key and value; unknown keys are left alone.
    """
    values: dict[str, Any] = {}
    for item in fields(OptimizingConfig):
        key = item.metadata["key"]
        if key in properties:
            values[item.name] = _parse(key, properties[key], item.metadata["parse"])
    return OptimizingConfig(**values)


def _parse(key: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except (ValueError, OverflowError) as error:
        raise TableRefused(
            f"property {key} has the malformed value {text!r}: {error}",
            reason="configuration",
            hint=f"Mend it with ALTER TABLE … SET TBLPROPERTIES ('{key}' = '…') or remove it.",
        ) from error


def effective_properties(catalog: Mapping[str, str], table: Mapping[str, str]) -> dict[str, str]:
    """The table's properties over the catalog's defaults (keys under `table.`)."""
    return {**_catalog_defaults(catalog), **table}


def effective_config(catalog: Mapping[str, str], table: Mapping[str, str]) -> tuple[EffectiveProperty, ...]:
    """Every property that steers optimizing, `self-optimizing.enabled` first, with its value and origin.

    The default of `self-optimizing.enabled` is false: a table is only observed until somebody says so. What
    `amoro table enable|disable` said is no property; `decide_enabled` joins the two. What else begins with
    `self-optimizing.` follows as unknown.
    """
    defaults = _catalog_defaults(catalog)
    known = [_effective(key, default, defaults, table) for key, default in _DEFAULTS.items()]
    said = {**defaults, **table}
    return (*known, *(EffectiveProperty(key, said[key], Origin.UNKNOWN) for key in _unknown(said)))


def check_defaults(catalog: Mapping[str, str]) -> None:
    """Raise InvalidArgument for a default that a catalog's properties say of its tables (under `table.`) that is
    malformed, or unknown and close to a known one."""
    defaults = _catalog_defaults(catalog)
    for key in _unknown(defaults):
        if close := difflib.get_close_matches(key.removeprefix(_PREFIX), _TAILS, n=1, cutoff=0.8):
            raise InvalidArgument(
                f"{CATALOG_PREFIX}{key} is not known", hint=f"Did you mean {CATALOG_PREFIX}{_PREFIX}{close[0]}?"
            )
    try:
        parse_config(defaults)
        decide_enabled(None, {}, catalog)
    except TableRefused as error:
        raise InvalidArgument(
            error.message, hint=f"Mend the catalog's default, a key under {CATALOG_PREFIX}"
        ) from error


def _unknown(properties: Mapping[str, str]) -> list[str]:
    return sorted(key for key in properties if key.startswith(_PREFIX) and key not in _DEFAULTS)


def _effective(
    key: str, default: str, catalog_defaults: Mapping[str, str], table: Mapping[str, str]
) -> EffectiveProperty:
    if key in table:
        return EffectiveProperty(key, table[key], Origin.TABLE)
    if key in catalog_defaults:
        return EffectiveProperty(key, catalog_defaults[key], Origin.CATALOG)
    return EffectiveProperty(key, default, Origin.DEFAULT)


def _catalog_defaults(catalog: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(CATALOG_PREFIX): value for key, value in catalog.items() if key.startswith(CATALOG_PREFIX)}


def is_switched_off(override: bool | None, table: Mapping[str, str]) -> bool:
    """Whether somebody said no: the table's own property, or `amoro table disable`."""
    return override is False or table.get(ENABLED_KEY, "").strip().lower() == "false"


def decide_enabled(override: bool | None, table: Mapping[str, str], catalog: Mapping[str, str]) -> Enabled:
    """Whether the table is optimized: never if any no is said, else if any yes is said, else observed only.

    `override` is `amoro table enable|disable`. Raises TableRefused for a malformed value.
    """
    key = ENABLED_KEY
    own = _parse(key, table[key], _boolean) if key in table else None
    default = _parse(f"table.{key}", catalog[f"table.{key}"], _boolean) if f"table.{key}" in catalog else None
    if own is False:
        return Enabled(False, f"the table's property {key}=false")
    if override is False:
        return Enabled(False, "amoro table disable")
    if own:
        return Enabled(True, f"the table's property {key}=true")
    if override:
        return Enabled(True, "amoro table enable")
    if default:
        return Enabled(True, f"the catalog's default table.{key}=true")
    return Enabled(False, "observed only: nobody enabled it")
