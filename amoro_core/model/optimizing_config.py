"""Typed `self-optimizing.*` properties (names and defaults are Amoro's), and policies: defaults by names of tables."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.model.properties import (
    Window,
    boolean,
    declared,
    fraction,
    interval,
    milliseconds,
    name,
    one_of,
    optional,
    parse_into,
    parse_value,
    properties_of,
    size,
    time_zone,
    unless_empty,
    whole,
    window,
)
from amoro_core.model.tables import Origin, TableIdentifier

ENABLED_KEY = "self-optimizing.enabled"
FILTER_KEY = "self-optimizing.filter"
#: Allows rewritten files to be Parquet although the table's writers use another format.
WRITE_FORMAT_KEY = "self-optimizing.write-format"
#: The prefix of a catalog's properties that are defaults for its tables.
CATALOG_PREFIX = "table."
#: Beside such a default that comes from a policy: its name, by the table's key.
POLICY_PREFIX = "policy:"
_ZONE_KEY = "maintenance.zone"


def _write_format(text: str) -> str | None:
    wanted = text.strip().lower() or None
    if wanted not in (None, "parquet"):
        raise ValueError("expected parquet, the only format that is written")
    return wanted


class ConflictGranularity(StrEnum):
    """At which level a writer that announces partitions conflicts with a process that runs."""

    FILE = "file"  # never before the commit, which compares files
    PARTITION = "partition"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class OptimizingConfig:
    """The properties of one table that control its optimizing; sizes in bytes."""

    group: str = declared("self-optimizing.group", "default", name)
    quota: float = declared("self-optimizing.quota", "0.5", fraction(0.0))
    priority: int = declared("self-optimizing.priority", "5", whole(0, 9))
    allow_partial_commit: bool = declared("self-optimizing.allow-partial-commit", "false", boolean)
    max_retries: int = declared("self-optimizing.execute.num-retries", "5", whole(0))
    target_size: int = declared("self-optimizing.target-size", "134217728", whole(1))
    max_file_count: int = declared("self-optimizing.max-file-count", "10000", whole(2))
    max_plan_bytes: int | None = declared("self-optimizing.max-plan-bytes", "", unless_empty(size))
    max_task_size: int = declared("self-optimizing.max-task-size-bytes", "134217728", whole(1))
    fragment_ratio: int = declared("self-optimizing.fragment-ratio", "8", whole(1))
    min_target_size_ratio: float = declared("self-optimizing.min-target-size-ratio", "0.75", fraction(0.0, 1.0))
    minor_trigger_file_count: int = declared("self-optimizing.minor.trigger.file-count", "12", whole(1))
    minor_trigger_interval: timedelta | None = declared("self-optimizing.minor.trigger.interval", "3600000", interval)
    minor_trigger_commits: int | None = declared("self-optimizing.minor.trigger.commits", "", unless_empty(whole(1)))
    minor_trigger_delete_bytes: int | None = declared(
        "self-optimizing.minor.trigger.delete-bytes", "", unless_empty(size)
    )
    major_trigger_duplicate_ratio: float = declared(
        "self-optimizing.major.trigger.duplicate-ratio", "0.1", fraction(0.0)
    )
    full_trigger_interval: timedelta | None = declared("self-optimizing.full.trigger.interval", "-1", interval)
    full_rewrite_all_files: bool = declared("self-optimizing.full.rewrite-all-files", "true", boolean)
    filter: str | None = declared(FILTER_KEY, "", optional)
    write_format: str | None = declared(WRITE_FORMAT_KEY, "", _write_format)
    min_plan_interval: timedelta | None = declared("self-optimizing.min-plan-interval", "60000", interval)
    evaluation_fallback_interval: timedelta | None = declared(
        "self-optimizing.evaluation.fallback-interval", "-1", interval
    )
    mse_tolerance: int = declared("self-optimizing.evaluation.file-size.mse-tolerance", "0", whole(0))
    refresh_max_interval: timedelta = declared(
        "self-optimizing.refresh-table.adaptive.max-interval-ms", "0", milliseconds(0)
    )
    refresh_increase_step: timedelta = declared(
        "self-optimizing.refresh-table.adaptive.increase-step-ms", "30000", milliseconds(1)
    )
    rebase: bool = declared("self-optimizing.rebase.enabled", "true", boolean)
    max_hidden_ratio: float = declared("self-optimizing.rebase.max-hidden-ratio", "0.2", fraction(0.0, 1.0))
    conflict_granularity: ConflictGranularity = declared(
        "self-optimizing.conflict-granularity", "file", one_of({word.value: word for word in ConflictGranularity})
    )
    polaris_rollback: bool = declared("self-optimizing.polaris-rollback", "false", boolean)
    commit_timeout: timedelta = declared("self-optimizing.commit.timeout", "600000", milliseconds(1))
    #: None: minor copies, major and full encode what has small row groups.
    row_group_merge: bool | None = declared(
        "self-optimizing.rewrite.use-parquet-row-group-merge.enabled", "", unless_empty(boolean)
    )
    row_group_merge_min_size: int = declared(
        "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes", "8388608", whole(0)
    )
    copy_max_row_groups: int = declared("self-optimizing.rewrite.copy.max-row-groups", "1024", whole(1))
    coarse_interval: timedelta | None = declared("self-optimizing.major.trigger.coarse-interval", "86400000", interval)
    copy_verify: bool = declared("self-optimizing.rewrite.copy.verify", "true", boolean)
    open_file_cost: int = declared("read.split.open-file-cost", "4194304", whole(0))
    window: Window | None = declared("self-optimizing.window", "", window)  # None: at any time
    zone: ZoneInfo = ZoneInfo("UTC")  # of the window

    @property
    def fragment_size(self) -> int:
        """The largest size of a fragment, in bytes (integer division, as in Amoro)."""
        return self.target_size // self.fragment_ratio

    @property
    def knows_coarse(self) -> bool:
        """Whether files that minor copied are encoded later."""
        return self.row_group_merge is not True and self.row_group_merge_min_size > 0

    @property
    def min_target_size(self) -> int:
        """The largest size of an undersized segment, in bytes."""
        return int(self.target_size * self.min_target_size_ratio)


#: Every key that controls optimizing, with its default.
_DEFAULTS = {ENABLED_KEY: "false"} | {item.key: item.default for item in properties_of(OptimizingConfig)}
_PREFIX = "self-optimizing."
#: What keys begin with that are declared elsewhere.
_ELSEWHERE = "self-optimizing.cluster."
_TAILS = [key.removeprefix(_PREFIX) for key in _DEFAULTS if key.startswith(_PREFIX)]


@dataclass(frozen=True, slots=True)
class EffectiveProperty:
    """A property's value as written, even if malformed, and its origin."""

    key: str
    value: str
    origin: str  # an Origin; a policy with its name
    default: str = ""  # the value if it is not set; "" for none


@dataclass(frozen=True, slots=True)
class Enabled:
    """Whether a table is optimized, what decides it, and whose "false" forbids it, other than `amoro table disable`."""

    value: bool
    origin: str
    veto: Origin | None = None


def parse_config(properties: Mapping[str, str]) -> OptimizingConfig:
    """The configuration in the properties; missing ones have Amoro's defaults.

    Raises TableRefused("configuration") naming key and value; unknown keys are ignored.
    """
    zone = parse_value(_ZONE_KEY, properties.get(_ZONE_KEY, "UTC"), time_zone)
    return parse_into(OptimizingConfig, properties, zone=zone)


def welcomes_parquet(properties: Mapping[str, str]) -> bool:
    """Whether the properties allow rewritten files to be Parquet whatever the writers' format.

    Raises TableRefused("configuration").
    """
    return parse_value(WRITE_FORMAT_KEY, properties.get(WRITE_FORMAT_KEY, ""), _write_format) is not None


def effective_properties(catalog: Mapping[str, str], table: Mapping[str, str]) -> dict[str, str]:
    """The table's properties over the catalog's defaults (keys under `table.`)."""
    return {**catalog_defaults(catalog), **table}


def check_defaults(catalog: Mapping[str, str]) -> None:
    """Raise InvalidArgument for a catalog's default for its tables (a key under `table.`) that is malformed, or
    unknown but close to a known one."""
    defaults = catalog_defaults(catalog)
    for key in _unknown(defaults):
        if close := difflib.get_close_matches(key.removeprefix(_PREFIX), _TAILS, n=1, cutoff=0.8):
            raise InvalidArgument(
                f"{CATALOG_PREFIX}{key} is not known", hint=f"Did you mean {CATALOG_PREFIX}{_PREFIX}{close[0]}?"
            )
    try:
        parse_config(defaults)
        decide_enabled(None, {}, catalog)
    except TableRefused as error:
        raise InvalidArgument(error.message, hint=f"Fix the catalog's default, a key under {CATALOG_PREFIX}") from error


def _unknown(properties: Mapping[str, str]) -> list[str]:
    ours = (key for key in properties if key.startswith(_PREFIX) and not key.startswith(_ELSEWHERE))
    return sorted(key for key in ours if key not in _DEFAULTS)


def catalog_defaults(catalog: Mapping[str, str]) -> dict[str, str]:
    """A catalog's defaults for its tables, by the tables' own keys."""
    return {key.removeprefix(CATALOG_PREFIX): value for key, value in catalog.items() if key.startswith(CATALOG_PREFIX)}


def decide_enabled(
    override: bool | None, table: Mapping[str, str], catalog: Mapping[str, str], key: str = ENABLED_KEY
) -> Enabled:
    """Whether the table is optimized: any "false" disables it, else any "true" enables it, else it is only observed.

    The "false" of a catalog's default, which a policy overrides, is none. `override` is `amoro table enable|disable`,
    `key` the property. Raises TableRefused for a malformed value.
    """
    own = parse_value(key, table[key], boolean) if key in table else None
    default = parse_value(f"table.{key}", catalog[f"table.{key}"], boolean) if f"table.{key}" in catalog else None
    if own is False:
        return Enabled(False, f"the table's property {key}=false", Origin.TABLE)
    policy = catalog.get(f"{POLICY_PREFIX}{key}")
    if policy is not None and default is False:
        return Enabled(False, f"{Origin.POLICY} {policy}: {key}=false", Origin.POLICY)
    if override is False:
        return Enabled(False, "amoro table disable")
    if own:
        return Enabled(True, f"the table's property {key}=true")
    if override:
        return Enabled(True, "amoro table enable")
    if default:
        by = f"{Origin.POLICY} {policy}: {key}" if policy is not None else f"the catalog's default table.{key}"
        return Enabled(True, f"{by}=true")
    return Enabled(False, "observed only: it was never enabled")


#: Of these keys any "false" counts, however wide its pattern is.
_ANY_NO_WINS = frozenset({ENABLED_KEY, "table-service.enabled"})


@dataclass(frozen=True, slots=True)
class Policy:
    """Defaults of the tables whose names match a pattern, in the dialect of roles: `*` stays within a part."""

    name: str
    rank: tuple[int, int, int]  # literal parts of the pattern, literal characters, priority; the greatest is heard
    values: tuple[tuple[str, str], ...]  # properties of tables, as written
    tests: tuple[Callable[[TableIdentifier], bool], ...]  # of the pattern, then of the exceptions

    def applies_to(self, table: TableIdentifier) -> bool:
        """Whether the table's name matches, and none of the exceptions does."""
        return self.tests[0](table) and not any(test(table) for test in self.tests[1:])


#: Those of one version, the most specific first; those of equal rank in the order of the file.
Policies = tuple[Policy, ...]
#: What policies say of a table: by key the value, and whose it is.
Said = Mapping[str, tuple[str, Policy]]


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """The file of policies as it was applied once; versions count from 1 on, and the last one holds."""

    version: int
    text: str
    applied_by: str
    applied_at: datetime


def values_for(policies: Policies, table: TableIdentifier, *, is_strict: bool = False) -> Said:
    """What they say of the table.

    Raises InvalidArgument where two of equal rank differ, if `is_strict`; else the first in the file is heard.
    """
    merged: dict[str, tuple[str, Policy]] = {}
    for policy in (item for item in policies if item.applies_to(table)):
        for key, value in policy.values:
            first, other = merged.setdefault(key, (value, policy))
            if key in _ANY_NO_WINS:
                if value.strip().lower() == "false" != first.strip().lower():
                    merged[key] = value, policy
            elif is_strict and first != value and other.rank == policy.rank:
                raise InvalidArgument(
                    f"the policies {other.name} and {policy.name} are of equal rank, and differ in {key} on {table}: "
                    f"{first} and {value}",
                    hint="Give one of them a narrower pattern, a priority, or an exclude.",
                )
    return merged


def with_policies(catalog: Mapping[str, str], policies: Said) -> dict[str, str]:
    """The properties of a catalog, with what policies say of a table as defaults for it, and who says it."""
    merged = dict(catalog)
    for key, (value, policy) in policies.items():
        merged[f"{CATALOG_PREFIX}{key}"], merged[f"{POLICY_PREFIX}{key}"] = value, policy.name
    return merged
