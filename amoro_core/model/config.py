"""`self-optimizing.*` table properties as a typed configuration (names and defaults are Amoro's)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from math import inf
from typing import Any

from amoro_core.errors import TableRefused

PREFIX = "self-optimizing."


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("expected true or false")


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError(f"expected a whole number of at least {least}")
        return value

    return parse


def _fraction(least: float, most: float | None = None) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not least <= value < inf or (most is not None and value > most):
            raise ValueError(f"expected a number of at least {least}" + (f" and at most {most}" if most else ""))
        return value

    return parse


def _interval(text: str) -> timedelta | None:
    """Milliseconds; a negative number means "never"."""
    value = int(text)
    return timedelta(milliseconds=value) if value >= 0 else None


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a name")
    return text.strip()


def _property(key: str, default: Any, parse: Callable[[str], Any]) -> Any:
    return field(default=default, metadata={"key": key, "parse": parse})


@dataclass(frozen=True, slots=True)
class OptimizingConfig:
    """The properties of one table that steer its optimizing; sizes in bytes."""

    group: str = _property("self-optimizing.group", "default", _text)
    quota: float = _property("self-optimizing.quota", 0.5, _fraction(0.0))
    allow_partial_commit: bool = _property("self-optimizing.allow-partial-commit", False, _boolean)
    max_retries: int = _property("self-optimizing.execute.num-retries", 5, _whole(0))
    target_size: int = _property("self-optimizing.target-size", 134217728, _whole(1))
    max_file_count: int = _property("self-optimizing.max-file-count", 10000, _whole(2))
    max_task_size: int = _property("self-optimizing.max-task-size-bytes", 134217728, _whole(1))
    fragment_ratio: int = _property("self-optimizing.fragment-ratio", 8, _whole(1))
    min_target_size_ratio: float = _property("self-optimizing.min-target-size-ratio", 0.75, _fraction(0.0, 1.0))
    minor_trigger_file_count: int = _property("self-optimizing.minor.trigger.file-count", 12, _whole(1))
    minor_trigger_interval: timedelta | None = _property(
        "self-optimizing.minor.trigger.interval", timedelta(hours=1), _interval
    )
    major_trigger_duplicate_ratio: float = _property(
        "self-optimizing.major.trigger.duplicate-ratio", 0.1, _fraction(0.0)
    )
    full_trigger_interval: timedelta | None = _property("self-optimizing.full.trigger.interval", None, _interval)
    full_rewrite_all_files: bool = _property("self-optimizing.full.rewrite-all-files", True, _boolean)
    min_plan_interval: timedelta | None = _property(
        "self-optimizing.min-plan-interval", timedelta(minutes=1), _interval
    )
    open_file_cost: int = _property("read.split.open-file-cost", 4194304, _whole(0))

    @property
    def fragment_size(self) -> int:
        """The largest size of a fragment, in bytes (integer division, as Amoro)."""
        return self.target_size // self.fragment_ratio

    @property
    def min_target_size(self) -> int:
        """The largest size of an undersized segment, in bytes."""
        return int(self.target_size * self.min_target_size_ratio)


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
    defaults = {key.removeprefix("table."): value for key, value in catalog.items() if key.startswith("table.")}
    return {**defaults, **table}


def decide_enabled(override: bool | None, table: Mapping[str, str], catalog: Mapping[str, str]) -> Enabled:
    """Whether the table is optimized: never if any no is said, else if any yes is said, else observed only.

    `override` is `amoro table enable|disable`. Raises TableRefused for a malformed value.
    """
    key = "self-optimizing.enabled"
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
