import json
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_cli.launcher import DemoOptions, Finding, OptimizerOptions, SparkOptions, UpOptions
from amoro_cli.session import available_cores
from tests.cli.conftest import Cli, record
from tests.cli.fakes import FakeLauncher

MB = 2**20


def optimizer_options(home: Path, **changes: object) -> OptimizerOptions:
    values: dict[str, object] = {
        "address": "127.0.0.1:1261",
        "group": "default",
        "threads": available_cores(),
        "memory_bytes": 512 * MB,
        "token_file": None,
        "home": home,
        "heartbeat_interval": timedelta(seconds=10),
        "resource_id": None,
    }
    return OptimizerOptions(**{**values, **changes})


def test_up_leaves_address_and_port_to_the_settings(bare_cli: Cli, launcher: FakeLauncher, home: Path) -> None:
    assert bare_cli("up", "--home", str(home)).status == 0
    assert launcher.calls == [UpOptions(home, None, None, None, None, 512 * MB, False)]


def test_up_takes_everything_from_its_options(bare_cli: Cli, launcher: FakeLauncher, home: Path) -> None:
    result = bare_cli(
        "--home", str(home), "up", "--config", "a.yaml", "--host", "::", "--port", "0", "--threads", "3",
        "--memory", "1.5GB", "--without-optimizer",
    )  # fmt: skip
    assert result.status == 0
    assert launcher.calls == [UpOptions(home, Path("a.yaml"), "::", 0, 3, 1536 * MB, True)]


def test_the_state_directory_comes_from_the_option_then_the_environment_then_the_users_home(
    bare_cli: Cli, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bare_cli("up")
    monkeypatch.setenv("AMORO_HOME", str(tmp_path / "other"))
    bare_cli("up")
    bare_cli("--home", str(tmp_path / "before"), "up")
    bare_cli("--home", str(tmp_path / "before"), "up", "--home", str(tmp_path / "after"))
    assert [call.home for call in launcher.calls] == [
        tmp_path / ".amoro",
        tmp_path / "other",
        tmp_path / "before",
        tmp_path / "after",
    ]


def test_an_optimizer_has_the_defaults_of_the_contract(bare_cli: Cli, launcher: FakeLauncher, home: Path) -> None:
    assert bare_cli("optimizer", "run", "--home", str(home)).status == 0
    assert launcher.calls == [optimizer_options(home)]


def test_an_optimizer_takes_its_options_in_words(bare_cli: Cli, launcher: FakeLauncher, home: Path) -> None:
    bare_cli(
        "optimizer", "run", "--address", "c:1261", "--group", "g", "--threads", "4", "--memory", "1GB", "--token-file",
        "t", "--heartbeat-interval", "5s", "--resource-id", "r", "--home", str(home),
    )  # fmt: skip
    assert launcher.calls == [OptimizerOptions("c:1261", "g", 4, 1024 * MB, Path("t"), home, timedelta(seconds=5), "r")]


def test_an_optimizer_takes_amoros_short_options(bare_cli: Cli, launcher: FakeLauncher, home: Path) -> None:
    bare_cli(
        "optimizer", "run", "-a", "[::1]:1261", "-g", "g", "-p", "4", "-hb", "5000", "-id", "r", "--home", str(home)
    )
    assert launcher.calls == [
        optimizer_options(
            home,
            address="[::1]:1261",
            group="g",
            threads=4,
            heartbeat_interval=timedelta(seconds=5),
            resource_id="r",
        )
    ]


def test_an_optimizer_finds_the_coordinator_of_the_state_directory(
    bare_cli: Cli, launcher: FakeLauncher, home: Path, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_cli("optimizer", "run", "--home", str(home))
    monkeypatch.setenv("AMORO_ADDRESS", "elsewhere:1261")
    bare_cli("optimizer", "run", "--home", str(home))
    assert [call.address for call in launcher.calls] == [coordinator, "elsewhere:1261"]


@pytest.mark.parametrize("address", ["c", "thrift://c:1261", "c:0", "c:65536", "c:x", ":1261", "a b:1"])
def test_an_address_that_is_none_is_wrong_usage(bare_cli: Cli, launcher: FakeLauncher, address: str) -> None:
    result = bare_cli("optimizer", "run", "-a", address)
    assert (result.status, result.out) == (2, "")
    assert result.err == (
        f"Error: {address!r} is not an address [AMORO-2001]\nHint: Write host:port, such as 127.0.0.1:1261.\n"
    )
    assert launcher.calls == []


def test_the_demo_is_plain_off_a_terminal(bare_cli: Cli, launcher: FakeLauncher, tmp_path: Path) -> None:
    bare_cli("demo")
    bare_cli("demo", "--seconds", "5", "--directory", str(tmp_path), "--plain")
    assert launcher.calls == [DemoOptions(45, None, True), DemoOptions(5, tmp_path, True)]


def test_doctor_shows_what_is_wrong_and_how_to_mend_it(bare_cli: Cli, launcher: FakeLauncher, home: Path) -> None:
    launcher.findings = [
        Finding("sqlite", True, "3.46"),
        Finding("catalog sales", False, "cannot be reached", "check its uri"),
    ]
    result = bare_cli("doctor", "--home", str(home), "--config", "c.yaml")
    assert (result.status, result.err) == (1, "")
    assert result.out == (
        "CHECK          STATE   DETAIL\n"
        "sqlite         ok      3.46\n"
        "catalog sales  not ok  cannot be reached\n"
        "To fix catalog sales: check its uri\n"
    )
    assert launcher.calls == [("doctor", home, Path("c.yaml"))]
    assert json.loads(bare_cli("doctor", "-o", "json").out) == {
        "schema": "amoro.findings/v1",
        "ok": False,
        "findings": [
            {"name": "sqlite", "ok": True, "detail": "3.46", "fix": ""},
            {"name": "catalog sales", "ok": False, "detail": "cannot be reached", "fix": "check its uri"},
        ],
    }


def test_doctor_ends_well_when_nothing_is_wrong(bare_cli: Cli, launcher: FakeLauncher) -> None:
    launcher.findings = [Finding("sqlite", True, "3.46")]
    result = bare_cli("doctor", "-o", "name")
    assert (result.status, result.out, result.err) == (0, "", "")


def test_a_recorded_coordinator_that_is_gone_does_not_give_an_optimizer_its_address(
    bare_cli: Cli, launcher: FakeLauncher, home: Path, dead_pid: int
) -> None:
    record(home, dead_pid, "127.0.0.1:9")
    bare_cli("optimizer", "run", "--home", str(home))
    assert launcher.calls == [optimizer_options(home)]


def test_an_optimizer_on_spark_has_as_many_threads_as_spark_has_cores(
    bare_cli: Cli, launcher: FakeLauncher, home: Path
) -> None:
    bare_cli("optimizer", "run", "--backend", "spark", "--home", str(home))
    bare_cli(
        "optimizer", "run", "--backend", "spark", "--master", "spark://m:7077", "--threads", "3",
        "--spark-conf", "spark.executor.memory=2g", "--spark-conf", "a=b=c", "--home", str(home),
    )  # fmt: skip
    assert launcher.calls == [
        optimizer_options(home, threads=None, spark=SparkOptions(None)),
        optimizer_options(
            home,
            threads=3,
            spark=SparkOptions("spark://m:7077", (("spark.executor.memory", "2g"), ("a", "b=c"))),
        ),
    ]


@pytest.mark.parametrize("option", [("--master", "local[2]"), ("--spark-conf", "a=b")])
def test_options_of_spark_need_its_backend(bare_cli: Cli, launcher: FakeLauncher, option: tuple[str, str]) -> None:
    result = bare_cli("optimizer", "run", *option)
    assert (result.status, result.err) == (
        2,
        "Error: --master and --spark-conf are for Spark [AMORO-2001]\nHint: Add --backend spark.\n",
    )
    assert launcher.calls == []


@pytest.mark.parametrize("setting", ["spark.executor.memory", "=2g", " =2g"])
def test_a_setting_of_spark_without_key_or_value_is_wrong_usage(
    bare_cli: Cli, launcher: FakeLauncher, setting: str
) -> None:
    result = bare_cli("optimizer", "run", "--backend", "spark", "--spark-conf", setting)
    assert result.status == 2
    assert f"'{setting}' is not KEY=VALUE" in result.err
    assert launcher.calls == []
