"""Table properties as a configuration, and who enabled a table."""

from datetime import timedelta

import pytest

from amoro_core.errors import InvalidArgument, TableRefused
from amoro_core.formats.configurations import all_properties, effective_config
from amoro_core.model.config import (
    EffectiveProperty,
    Enabled,
    OptimizingConfig,
    Origin,
    check_defaults,
    decide_enabled,
    effective_properties,
    parse_config,
)

ENABLED = "self-optimizing.enabled"
DEFAULT = "table.self-optimizing.enabled"


def refusal(key: str, value: str) -> TableRefused:
    with pytest.raises(TableRefused) as caught:
        parse_config({key: value})
    return caught.value


def test_defaults_are_amoros() -> None:
    assert parse_config({}) == OptimizingConfig(
        group="default",
        quota=0.5,
        allow_partial_commit=False,
        max_retries=5,
        target_size=134217728,
        max_file_count=10000,
        max_task_size=134217728,
        fragment_ratio=8,
        min_target_size_ratio=0.75,
        minor_trigger_file_count=12,
        minor_trigger_interval=timedelta(hours=1),
        major_trigger_duplicate_ratio=0.1,
        full_trigger_interval=None,
        full_rewrite_all_files=True,
        filter=None,
        min_plan_interval=timedelta(minutes=1),
        evaluation_fallback_interval=None,
        mse_tolerance=0,
        refresh_max_interval=timedelta(0),
        refresh_increase_step=timedelta(seconds=30),
        rebase=True,
        max_hidden_ratio=0.2,
        commit_timeout=timedelta(minutes=10),
        row_group_merge=None,
        row_group_merge_min_size=8388608,
        copy_max_row_groups=1024,
        coarse_interval=timedelta(days=1),
        copy_verify=True,
        open_file_cost=4194304,
    )


def test_every_property_is_read() -> None:
    assert parse_config(
        {
            "self-optimizing.group": "big",
            "self-optimizing.quota": "3",
            "self-optimizing.allow-partial-commit": "TRUE",
            "self-optimizing.execute.num-retries": "0",
            "self-optimizing.target-size": "1000",
            "self-optimizing.max-file-count": "2",
            "self-optimizing.max-task-size-bytes": "2000",
            "self-optimizing.fragment-ratio": "4",
            "self-optimizing.min-target-size-ratio": "0.5",
            "self-optimizing.minor.trigger.file-count": "3",
            "self-optimizing.minor.trigger.interval": "-1",
            "self-optimizing.major.trigger.duplicate-ratio": "0",
            "self-optimizing.full.trigger.interval": "86400000",
            "self-optimizing.full.rewrite-all-files": "false",
            "self-optimizing.filter": " day > '2026-01-01' ",
            "self-optimizing.write-format": " Parquet ",
            "self-optimizing.min-plan-interval": "0",
            "self-optimizing.evaluation.fallback-interval": "86400000",
            "self-optimizing.evaluation.file-size.mse-tolerance": "1000",
            "self-optimizing.refresh-table.adaptive.max-interval-ms": "600000",
            "self-optimizing.refresh-table.adaptive.increase-step-ms": "1000",
            "self-optimizing.rewrite.use-parquet-row-group-merge.enabled": "false",
            "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes": "1",
            "self-optimizing.rewrite.copy.max-row-groups": "2",
            "self-optimizing.major.trigger.coarse-interval": "-1",
            "self-optimizing.rewrite.copy.verify": "false",
            "read.split.open-file-cost": "7",
        }
    ) == OptimizingConfig(
        group="big",
        quota=3.0,
        allow_partial_commit=True,
        max_retries=0,
        target_size=1000,
        max_file_count=2,
        max_task_size=2000,
        fragment_ratio=4,
        min_target_size_ratio=0.5,
        minor_trigger_file_count=3,
        minor_trigger_interval=None,
        major_trigger_duplicate_ratio=0.0,
        full_trigger_interval=timedelta(days=1),
        full_rewrite_all_files=False,
        filter="day > '2026-01-01'",
        write_format="parquet",
        min_plan_interval=timedelta(0),
        evaluation_fallback_interval=timedelta(days=1),
        mse_tolerance=1000,
        refresh_max_interval=timedelta(minutes=10),
        refresh_increase_step=timedelta(seconds=1),
        row_group_merge=False,
        row_group_merge_min_size=1,
        copy_max_row_groups=2,
        coarse_interval=None,
        copy_verify=False,
        open_file_cost=7,
    )


def test_unknown_keys_are_left_alone() -> None:
    assert parse_config({"self-optimizing.colour": "blue", "owner": "me"}) == OptimizingConfig()


def test_size_limits_follow_from_the_target() -> None:
    config = OptimizingConfig(target_size=1001, fragment_ratio=8, min_target_size_ratio=0.75)
    assert (config.fragment_size, config.min_target_size) == (125, 750)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("self-optimizing.write-format", "orc", "expected parquet, the only format that is written"),
        ("self-optimizing.allow-partial-commit", "yes", "expected true or false"),
        ("self-optimizing.target-size", "128MB", "expected a whole number"),
        ("self-optimizing.target-size", "1_000", "expected a whole number"),
        ("self-optimizing.target-size", "٣", "expected a whole number"),
        ("self-optimizing.target-size", "9223372036854775808", "expected a whole number of at most 64 bits"),
        ("self-optimizing.target-size", "9" * 5000, "expected a whole number of at most 64 bits"),
        ("self-optimizing.target-size", "0", "expected a whole number of at least 1"),
        ("self-optimizing.max-file-count", "1", "expected a whole number of at least 2"),
        ("self-optimizing.quota", "-0.1", "expected a number of at least 0.0"),
        ("self-optimizing.quota", "1_0", "expected a number of at least 0.0"),
        ("self-optimizing.quota", "nan", "expected a number of at least 0.0"),
        ("self-optimizing.min-target-size-ratio", "1.01", "expected a number of at least 0.0 and at most 1.0"),
        ("self-optimizing.rebase.max-hidden-ratio", "1.5", "expected a number of at least 0.0 and at most 1.0"),
        ("self-optimizing.rebase.enabled", "on", "expected true or false"),
        ("self-optimizing.minor.trigger.interval", "1h", "expected a whole number"),
        ("self-optimizing.refresh-table.adaptive.increase-step-ms", "0", "expected a whole number of at least 1"),
        ("self-optimizing.refresh-table.adaptive.max-interval-ms", "-1", "expected a whole number of at least 0"),
        ("self-optimizing.evaluation.file-size.mse-tolerance", "-1", "expected a whole number of at least 0"),
        ("self-optimizing.rewrite.use-parquet-row-group-merge.enabled", "1", "expected true or false"),
        ("self-optimizing.group", " ", "expected a name"),
    ],
)
def test_malformed_value_refuses_the_table_by_key_and_value(key: str, value: str, problem: str) -> None:
    error = refusal(key, value)
    assert error.message == f"property {key} has the malformed value {value!r}: {problem}"
    assert (error.reason, error.code, error.exit_status) == ("configuration", "AMORO-6001", 6)
    assert error.hint == f"Fix it with ALTER TABLE … SET TBLPROPERTIES ('{key}' = '…') or remove it."


@pytest.mark.parametrize("value", ["inf", "1e400"])
def test_infinite_quota_is_malformed(value: str) -> None:
    assert refusal("self-optimizing.quota", value).reason == "configuration"


def test_interval_too_long_for_a_duration_is_malformed() -> None:
    assert refusal("self-optimizing.full.trigger.interval", "9" * 30).reason == "configuration"


def test_interval_beyond_a_century_is_a_century() -> None:
    config = parse_config({"self-optimizing.minor.trigger.interval": str(2**63 - 1)})
    assert config.minor_trigger_interval == timedelta(days=36525)


def test_effective_config_says_every_value_and_who_said_it() -> None:
    catalog = {
        "table.self-optimizing.quota": "0.1",
        "table.self-optimizing.group": "big",
        "table.write.parquet.page-row-limit": "7",
        "self-optimizing.target-size": "1",
        "uri": "http://c",
    }
    table = {
        "self-optimizing.quota": "a lot",
        "self-optimizing.enabled": "true",
        "self-optimizing.colour": "blue",
        "write.parquet.bloom-filter-fpp.column.a": "0.1",
    }
    found = {item.key: (item.value, item.origin) for item in effective_config(catalog, table)}
    assert found["self-optimizing.enabled"] == ("true", Origin.TABLE)
    assert found["self-optimizing.quota"] == ("a lot", Origin.TABLE)
    assert found["self-optimizing.group"] == ("big", Origin.CATALOG)
    assert found["self-optimizing.target-size"] == ("134217728", Origin.DEFAULT)
    assert found["self-optimizing.colour"] == ("blue", Origin.UNKNOWN)
    assert found["write.parquet.bloom-filter-fpp.column.a"] == ("0.1", Origin.TABLE)
    assert "write.parquet.bloom-filter-fpp.column.*" not in found
    # Other writers know nothing of a catalog's defaults.
    assert found["write.parquet.page-row-limit"] == ("20000", Origin.DEFAULT)


def test_effective_config_of_nothing_is_amoros_but_for_enabled() -> None:
    found = effective_config({}, {})
    assert {item.origin for item in found} == {Origin.DEFAULT}
    assert [item.key for item in found] == [known.key for known in all_properties() if "*" not in known.key]
    assert found[:31] == tuple(
        EffectiveProperty(key, value, Origin.DEFAULT, value)
        for key, value in [
            ("self-optimizing.enabled", "false"),
            ("self-optimizing.group", "default"),
            ("self-optimizing.quota", "0.5"),
            ("self-optimizing.allow-partial-commit", "false"),
            ("self-optimizing.execute.num-retries", "5"),
            ("self-optimizing.target-size", "134217728"),
            ("self-optimizing.max-file-count", "10000"),
            ("self-optimizing.max-task-size-bytes", "134217728"),
            ("self-optimizing.fragment-ratio", "8"),
            ("self-optimizing.min-target-size-ratio", "0.75"),
            ("self-optimizing.minor.trigger.file-count", "12"),
            ("self-optimizing.minor.trigger.interval", "3600000"),
            ("self-optimizing.major.trigger.duplicate-ratio", "0.1"),
            ("self-optimizing.full.trigger.interval", "-1"),
            ("self-optimizing.full.rewrite-all-files", "true"),
            ("self-optimizing.filter", ""),
            ("self-optimizing.write-format", ""),
            ("self-optimizing.min-plan-interval", "60000"),
            ("self-optimizing.evaluation.fallback-interval", "-1"),
            ("self-optimizing.evaluation.file-size.mse-tolerance", "0"),
            ("self-optimizing.refresh-table.adaptive.max-interval-ms", "0"),
            ("self-optimizing.refresh-table.adaptive.increase-step-ms", "30000"),
            ("self-optimizing.rebase.enabled", "true"),
            ("self-optimizing.rebase.max-hidden-ratio", "0.2"),
            ("self-optimizing.commit.timeout", "600000"),
            ("self-optimizing.rewrite.use-parquet-row-group-merge.enabled", ""),
            ("self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes", "8388608"),
            ("self-optimizing.rewrite.copy.max-row-groups", "1024"),
            ("self-optimizing.major.trigger.coarse-interval", "86400000"),
            ("self-optimizing.rewrite.copy.verify", "true"),
            ("read.split.open-file-cost", "4194304"),
        ]
    )


def test_properties_of_the_table_win_over_the_catalogs_defaults() -> None:
    catalog = {"table.self-optimizing.quota": "0.1", "table.owner": "ops", "uri": "http://c", "self-optimizing.x": "1"}
    assert effective_properties(catalog, {"self-optimizing.quota": "0.9"}) == {
        "self-optimizing.quota": "0.9",
        "owner": "ops",
    }


@pytest.mark.parametrize(
    ("override", "own", "default", "expected"),
    [
        (None, None, None, Enabled(False, "observed only: it was never enabled")),
        (None, None, "false", Enabled(False, "observed only: it was never enabled")),
        (None, None, "true", Enabled(True, "the catalog's default table.self-optimizing.enabled=true")),
        (True, None, None, Enabled(True, "amoro table enable")),
        (True, None, "false", Enabled(True, "amoro table enable")),
        (None, "true", None, Enabled(True, "the table's property self-optimizing.enabled=true")),
        (None, "true", "false", Enabled(True, "the table's property self-optimizing.enabled=true")),
        (True, "false", "true", Enabled(False, "the table's property self-optimizing.enabled=false")),
        (False, "false", "true", Enabled(False, "the table's property self-optimizing.enabled=false")),
        (False, "true", "true", Enabled(False, "amoro table disable")),
        (False, None, None, Enabled(False, "amoro table disable")),
    ],
)
def test_any_no_wins_over_any_yes(
    override: bool | None, own: str | None, default: str | None, expected: Enabled
) -> None:
    table = {ENABLED: own} if own is not None else {}
    catalog = {DEFAULT: default} if default is not None else {}
    assert decide_enabled(override, table, catalog) == expected


@pytest.mark.parametrize(("table", "catalog", "key"), [({ENABLED: "on"}, {}, ENABLED), ({}, {DEFAULT: "on"}, DEFAULT)])
def test_malformed_switch_refuses_the_table(table: dict[str, str], catalog: dict[str, str], key: str) -> None:
    with pytest.raises(TableRefused) as caught:
        decide_enabled(None, table, catalog)
    assert caught.value.message == f"property {key} has the malformed value 'on': expected true or false"
    assert caught.value.reason == "configuration"


@pytest.mark.parametrize(
    ("defaults", "says", "hint"),
    [
        (
            {"table.self-optimizing.enabld": "true"},
            "table.self-optimizing.enabld is not known",
            "Did you mean table.self-optimizing.enabled?",
        ),
        (
            {"table.self-optimizing.enabled": "maybe"},
            "property table.self-optimizing.enabled has the malformed value 'maybe': expected true or false",
            "Fix the catalog's default, a key under table.",
        ),
        (
            {"table.self-optimizing.quota": "much"},
            "property self-optimizing.quota has the malformed value 'much': expected a number of at least 0.0",
            "Fix the catalog's default, a key under table.",
        ),
    ],
)
def test_a_catalogs_default_that_is_wrong_is_refused(defaults: dict[str, str], says: str, hint: str) -> None:
    with pytest.raises(InvalidArgument) as wrong:
        check_defaults(defaults)
    assert (wrong.value.message, wrong.value.hint) == (says, hint)


def test_catalogs_defaults_that_are_right_or_none_of_ours_are_let_be() -> None:
    check_defaults({"table.self-optimizing.quota": "0.3", "table.write.format.default": "x", "self-optimizing.x": "y"})
    check_defaults({"table.self-optimizing.wholly-different-and-from-elsewhere": "1"})
