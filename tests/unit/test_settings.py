"""Settings: the environment over the file over defaults, each value with its origin."""

import json
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
import yaml

from amoro_core.bootstrap.settings import Settings, load_settings
from amoro_core.errors import InvalidSettings
from amoro_core.model.processes import CatalogRules
from docs.generate import file_schema


def test_each_value_says_where_it_comes_from(tmp_path: Path) -> None:
    found = load_settings(tmp_path, None, {})
    assert found == Settings()
    assert {origin for _, _, origin in found.described()} == {"default"}
    assert [name for name, _, _ in found.described()][:3] == ["host", "port", "http-host"]
    path = tmp_path / "amoro.yaml"
    path.write_text("port: 7000\nhistory-keep: 90m\nheartbeat_interval: 5s\ngroups: [default, a]\n")
    environment = {"AMORO_PORT": "7001", "AMORO_HEARTBEAT_TIMEOUT": "1m30s", "AMORO_GROUPS": "b, c"}
    settings = load_settings(tmp_path, None, environment).with_values("flag --host", host="0.0.0.0")
    assert settings.history_keep == timedelta(minutes=90)
    assert [one for one in settings.described() if one[2] != "default"] == [
        ("host", "0.0.0.0", "flag --host"),
        ("port", "7001", "environment AMORO_PORT"),
        ("heartbeat-interval", "5s", f"file {path}"),
        ("heartbeat-timeout", "90s", "environment AMORO_HEARTBEAT_TIMEOUT"),
        ("groups", "b, c", "environment AMORO_GROUPS"),
        ("history-keep", "90m", f"file {path}"),
    ]


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("1.5 GiB", 3 * 2**29), ("4g", 4 * 2**30)])
def test_the_size_of_the_cache_has_a_unit_or_is_none(tmp_path: Path, text: str, size: int) -> None:
    (tmp_path / "amoro.yaml").write_text(f"planning-memory: {text}\n")
    assert load_settings(tmp_path, None, {}).planning_bytes == size


UNTYPABLE = "groups has the malformed value .*: expected a list of names of 1 to 255 characters without spaces"
#: Texts of the file, and what is said of them.
WRONG_FILES = {
    "histroy-keep: 1d": "unknown key 'histroy-keep'",
    "origins: x": "unknown key 'origins'",
    "port: 1\nhost: x\nport: 2": "amoro.yaml has the key 'port' twice",
    "history-keep: 1d\nhistory_keep: 2d": "amoro.yaml has the key 'history-keep' twice",
    "refresh-external-catalogs: {interval: 1m, interval: 2m}": "amoro.yaml has the key 'interval' twice",
    "refresh-external-catalogs: {thread-count: 0}": "thread-count has the malformed value 0: expected a whole",
    "heartbeat-interval: 2m": r"heartbeat-interval 2m \(file .*\) is not below heartbeat-timeout 1m \(default\)$",
    "heartbeat-interval: 20s\nheartbeat-timeout: 20s": (
        r"heartbeat-interval 20s \(file .*\) is not below heartbeat-timeout 20s \(file .*\)$"
    ),
    "http-port: 1261": r"http-port 1261 \(file .*\) is the same as port 1261 \(default\)$",
    "trusted-proxies: [10.0.0.0/24, x]": "^trusted-proxies holds 'x', which is neither an address nor a network$",
    "blocker-timeout: 25h": r"blocker-timeout 25h \(file .*\) is above 1d, the most that a blocker lasts$",
    "groups: [a, b, a]": r"groups a, b, a \(file .*\) names 'a' twice$",
    **{json.dumps({"groups": ["default", name]}): UNTYPABLE for name in ("", "a b", "x" * 256, 7)},
}
#: Variables and their values, and what is said of them.
WRONG_VARIABLES = {
    ("AMORO_PORT", "x"): "",
    ("AMORO_GROUPS", " , "): "",
    ("AMORO_ALLOWED_CLASSES", "Class"): "",
    ("AMORO_PLANNING_MEMORY", "7"): "",
    ("AMORO_CATALOGS", "{a: [/x]}"): "expected allow-locations or strict-locations below a",
    ("AMORO_CATALOGS", "{a: {allow: [/x]}}"): "a has the unknown key 'allow'",
    ("AMORO_CATALOGS", "{a: {allow-locations: /x}}"): "expected a list of locations as allow-locations of a",
    ("AMORO_CATALOGS", "{a: {strict-locations: 'yes'}}"): "expected true or false as strict-locations of a",
    ("AMORO_CATALOGS", "{a: {allow-locations: [lake/x]}}"): (
        "'lake/x' among the allow-locations of a is not a location: it is neither"
    ),
    ("AMORO_CATALOGS", "{a: {allow-locations: ['']}}"): (
        "'' among the allow-locations of a is not a location: it is empty"
    ),
    ("AMORO_CATALOGS", "{a: {allow-locations: [/]}}"): (
        "'/' among the allow-locations of a is not a location: it is everything"
    ),
    ("AMORO_CATALOGS", "{a: {allow-locations: [/x/../y]}}"): "is not a location: it has a '..' segment",
    ("AMORO_CATALOGS", "{a: {allow-locations: ['ftp://h/x']}}"): (
        "is not a location: the storage 'ftp' is not supported"
    ),
    ("AMORO_CATALOGS", "{"): "expected names of catalogs",
}


def test_what_is_wrong_in_the_file_or_a_variable_is_named_with_its_value(tmp_path: Path) -> None:
    path = tmp_path / "amoro.yaml"
    for text, said in WRONG_FILES.items():
        path.write_text(text)
        with pytest.raises(InvalidSettings, match=said) as refused:
            load_settings(tmp_path, None, {})
        assert refused.value.hint
        assert str(path) in refused.value.message or "(file" not in said
        assert (refused.value.hint == "Did you mean history-keep?") == ("histroy" in text)
    path.write_text(json.dumps({"groups": ["x" * 255]}))
    assert load_settings(tmp_path, None, {}).groups == ("x" * 255,)
    for (variable, value), said in WRONG_VARIABLES.items():
        with pytest.raises(InvalidSettings, match=f"environment variable {variable}: .* has the malformed value") as it:
            load_settings(tmp_path, None, {variable: value})
        assert said in it.value.message


def test_exploration_is_set_by_amoros_keys_nested_or_dotted_or_by_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "amoro.yaml"
    path.write_text("refresh-external-catalogs:\n  interval: 30s\n  thread-count: 3\n")
    found = load_settings(tmp_path, None, {"AMORO_REFRESH_EXTERNAL_CATALOGS_QUEUE_SIZE": "7"})
    assert (found.explore_interval, found.explore_threads, found.explore_queue) == (timedelta(seconds=30), 3, 7)
    path.write_text("refresh-external-catalogs.interval: 2m\n")
    assert load_settings(tmp_path, None, {}).explore_interval == timedelta(minutes=2)


RULES = "catalogs:\n  a_b:\n    allow-locations: [s3://b/x, /data]\n  a-b: {strict_locations: true}\n"


def test_catalogs_have_allowed_prefixes_and_strictness_by_name(tmp_path: Path) -> None:
    path = tmp_path / "amoro.yaml"
    path.write_text(RULES)
    settings = load_settings(tmp_path, None, {})
    assert settings.catalogs == (CatalogRules("a_b", ("s3://b/x", "/data")), CatalogRules("a-b", (), True))
    assert [line for line in settings.described() if line[0].startswith("catalogs")] == [
        ("catalogs.a_b.allow-locations", "s3://b/x, /data", f"file {path}"),
        ("catalogs.a_b.strict-locations", "false", f"file {path}"),
        ("catalogs.a-b.allow-locations", "", f"file {path}"),
        ("catalogs.a-b.strict-locations", "true", f"file {path}"),
    ]
    assert settings.rules_of("a_b") == CatalogRules("a_b", ("s3://b/x", "/data"))
    assert settings.rules_of("other") == CatalogRules("other")
    path.write_text(RULES + "strict-locations: true\n")
    assert load_settings(tmp_path, None, {}).rules_of("other") == CatalogRules("other", (), True)
    assert load_settings(tmp_path, None, {}).rules_of("a_b").strict_locations


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("port: 7000\nhistory-keep: 90m\ngroups: [default, a]\ninsecure: true\n", True),
        ("refresh-external-catalogs:\n  interval: 30s\n", True),
        ("port: 70000\n", False),
        ("heartbeat-interval: soon\n", False),
        ("insecure: 'yes'\n", False),
        (RULES.replace("strict_", "strict-"), True),
        ("catalogs: {a: {allow: [/x]}}\n", False),
        ("refresh-external-catalogs:\n  thread-count: 0\n", False),
    ],
)
def test_the_schema_and_the_coordinator_agree_about_a_file(tmp_path: Path, text: str, valid: bool) -> None:
    (tmp_path / "amoro.yaml").write_text(text)
    found = list(jsonschema.Draft202012Validator(file_schema()).iter_errors(yaml.safe_load(text)))
    assert (found == []) == valid
    if valid:
        load_settings(tmp_path, None, {})
    else:
        with pytest.raises(InvalidSettings):
            load_settings(tmp_path, None, {})


def test_what_is_to_be_done_about_a_file_does_not_need_that_file(tmp_path: Path) -> None:
    for content, hint in (
        ("port: abc", "Give it such a value"),
        ("a: [", "Write a key, a colon and a value"),
        ("- a", "Write a key"),
    ):
        (tmp_path / "amoro.yaml").write_text(content)
        with pytest.raises(InvalidSettings) as told:
            load_settings(tmp_path, None, {})
        assert told.value.hint.startswith(hint)
    with pytest.raises(InvalidSettings) as told:
        load_settings(tmp_path, tmp_path / "none.yaml", {})
    assert told.value.hint == "Name another with --config."
    with pytest.raises(InvalidSettings) as told:
        load_settings(tmp_path, tmp_path, {})
    assert (told.value.hint, "Is a directory" in told.value.message) == ("Check its rights.", True)
