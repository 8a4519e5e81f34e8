"""Settings: the environment over the file over defaults, each value with its origin."""

import json
from datetime import timedelta
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
import yaml

from amoro_core.errors import InvalidSettings
from amoro_core.settings import KEYS, Settings
from amoro_core.settings_sources import file_schema, load_settings

DEFAULTS = (
    ("host", "127.0.0.1", "default"),
    ("port", "1261", "default"),
    ("metrics-port", "0", "default"),
    ("insecure", "false", "default"),
    ("tls-certificate", "", "default"),
    ("tls-key", "", "default"),
    ("tls-client-ca", "", "default"),
    ("heartbeat-interval", "10s", "default"),
    ("heartbeat-timeout", "1m", "default"),
    ("schedule-to-ack", "30s", "default"),
    ("start-to-close", "2h", "default"),
    ("groups", "default", "default"),
    ("allowed-classes", "", "default"),
    ("history-keep", "30d", "default"),
    ("blocker-timeout", "1m", "default"),
    ("refresh-external-catalogs.interval", "3m", "default"),
    ("refresh-external-catalogs.thread-count", "10", "default"),
    ("refresh-external-catalogs.queue-size", "1000000", "default"),
)


def test_without_a_file_all_values_are_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path, None, {}) == Settings()
    assert load_settings(tmp_path, None, {}).described() == DEFAULTS


def test_each_value_says_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "amoro.yaml"
    path.write_text("port: 7000\nhistory-keep: 90m\nheartbeat_interval: 5s\ngroups: [default, a]\n")
    environment = {"AMORO_PORT": "7001", "AMORO_HEARTBEAT_TIMEOUT": "1m30s", "AMORO_GROUPS": "b, c"}
    settings = load_settings(tmp_path, None, environment).with_values("flag --host", host="0.0.0.0")  # noqa: S104
    assert settings.history_keep == timedelta(minutes=90)
    assert (
        settings.described()
        == (
            ("host", "0.0.0.0", "flag --host"),  # noqa: S104
            ("port", "7001", "environment AMORO_PORT"),
            ("metrics-port", "0", "default"),
            ("insecure", "false", "default"),
            *DEFAULTS[4:7],
            ("heartbeat-interval", "5s", f"file {path}"),
            ("heartbeat-timeout", "90s", "environment AMORO_HEARTBEAT_TIMEOUT"),
            ("schedule-to-ack", "30s", "default"),
            ("start-to-close", "2h", "default"),
            ("groups", "b, c", "environment AMORO_GROUPS"),
            ("allowed-classes", "", "default"),
            ("history-keep", "90m", f"file {path}"),
            *DEFAULTS[-4:],
        )
    )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AMORO_PORT", "x"),
        ("AMORO_PORT", "70000"),
        ("AMORO_HISTORY_KEEP", "0s"),
        ("AMORO_GROUPS", " , "),
        ("AMORO_ALLOWED_CLASSES", "Class"),
    ],
)
def test_a_malformed_variable_is_named_with_its_value(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(InvalidSettings, match=f"environment variable {variable}: .* has the malformed value"):
        load_settings(tmp_path, None, {variable: value})


def test_an_unknown_key_of_the_file_is_an_error_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "amoro.yaml").write_text("histroy-keep: 1d\n")
    with pytest.raises(InvalidSettings, match="unknown key 'histroy-keep'") as error:
        load_settings(tmp_path, None, {})
    assert error.value.hint == "Did you mean history-keep?"
    (tmp_path / "amoro.yaml").write_text("origins: x\n")
    with pytest.raises(InvalidSettings, match="unknown key 'origins'"):
        load_settings(tmp_path, None, {})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("port: 1\nhost: x\nport: 2\n", "port"),
        ("history-keep: 1d\nhistory_keep: 2d\n", "history-keep"),
        ("refresh-external-catalogs: {interval: 1m, interval: 2m}\n", "interval"),
    ],
)
def test_a_key_that_stands_twice_is_an_error(tmp_path: Path, text: str, key: str) -> None:
    (tmp_path / "amoro.yaml").write_text(text)
    with pytest.raises(InvalidSettings, match=f"amoro.yaml has the key '{key}' twice"):
        load_settings(tmp_path, None, {})


def test_exploration_is_set_by_amoros_keys_nested_or_dotted_or_by_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "amoro.yaml"
    path.write_text("refresh-external-catalogs:\n  interval: 30s\n  thread-count: 3\n")
    found = load_settings(tmp_path, None, {"AMORO_REFRESH_EXTERNAL_CATALOGS_QUEUE_SIZE": "7"})
    assert (found.explore_interval, found.explore_threads, found.explore_queue) == (timedelta(seconds=30), 3, 7)
    path.write_text("refresh-external-catalogs.interval: 2m\n")
    assert load_settings(tmp_path, None, {}).explore_interval == timedelta(minutes=2)
    path.write_text("refresh-external-catalogs:\n  thread-count: 0\n")
    with pytest.raises(InvalidSettings, match="thread-count has the malformed value 0: expected a whole number from 1"):
        load_settings(tmp_path, None, {})


SCHEMA = json.loads(resources.files("amoro_core").joinpath("settings.schema.json").read_text())


def test_the_schema_of_the_file_is_the_one_that_the_code_makes() -> None:
    assert file_schema() == SCHEMA, "run: python docs/generate.py"
    assert set(KEYS) < set(SCHEMA["properties"])
    assert SCHEMA["properties"]["heartbeat-interval"]["default"] == "10s"


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("port: 7000\nhistory-keep: 90m\ngroups: [default, a]\ninsecure: true\n", True),
        ("refresh-external-catalogs:\n  interval: 30s\n", True),
        ("refresh-external-catalogs.thread-count: 3\n", True),
        ("port: 70000\n", False),
        ("port: http\n", False),
        ("histroy-keep: 1d\n", False),
        ("heartbeat-interval: soon\n", False),
        ("groups: []\n", False),
        ("insecure: 'yes'\n", False),
        ("refresh-external-catalogs:\n  thread-count: 0\n", False),
    ],
)
def test_the_schema_and_the_coordinator_agree_about_a_file(tmp_path: Path, text: str, valid: bool) -> None:
    (tmp_path / "amoro.yaml").write_text(text)
    found = list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(yaml.safe_load(text)))
    assert (found == []) == valid
    if valid:
        load_settings(tmp_path, None, {})
    else:
        with pytest.raises(InvalidSettings):
            load_settings(tmp_path, None, {})
