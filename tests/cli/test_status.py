import json
from pathlib import Path

from amoro_core.documents.monitoring import BOARD, RULES, SCRAPE
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import monitoring_pb2 as monitoring
from tests.cli.conftest import Cli
from tests.cli.fakes import FakeAdmin
from tests.cli.messages import NOON
from tests.prometheus.promtool import ROOT

STATUS = pb.GetStatusResponse(
    version="1.2", started_ms=NOON, address="127.0.0.1:1261", tables=1234, optimizers=2, pid=77, role="leader"
)


def condition(name: str, *, raised: bool = True) -> monitoring.Condition:
    return monitoring.Condition(
        name=name,
        severity="page",
        raised=raised,
        text=f"{name} in group a",
        labels={"group": "a"},
        value=2,
        since_ms=NOON,
        remedy=f"Mend {name}.",
    )


def test_what_is_wrong_is_told_with_what_to_do(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetStatus", STATUS)
    found = [condition("tasks-wait"), condition("tasks-wait"), condition("disk-low", raised=False)]
    admin.script("ListConditions", monitoring.ListConditionsResponse(conditions=found))
    result = cli("status")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "version            1.2\n"
        "coordinator        at 127.0.0.1:1261 since 2026-09-21 14:13:20Z, PID 77\n"
        "tables             1,234\n"
        "optimizers         2\n"
        "running processes  0\n"
        "\n"
        "CONDITION   SEVERITY  SINCE                 WHAT\n"
        "tasks-wait  page      2026-09-21 14:13:20Z  tasks-wait in group a\n"
        "tasks-wait  page      2026-09-21 14:13:20Z  tasks-wait in group a\n"
        "\n"
        "tasks-wait: Mend tasks-wait.\n"
        "Watched, not for long enough yet: disk-low\n"
    )
    told = json.loads(cli("status", "-o", "json").out)
    assert (told["schema"], told["tables"], told["conditions"][0]["labels"]) == (
        "amoro.status/v1",
        1234,
        {"group": "a"},
    )
    assert [one["raised"] for one in told["conditions"]] == [True, True, False]
    assert cli("status", "-o", "name").out == "tasks-wait\ntasks-wait\ndisk-low\n"


def test_nothing_wrong_is_told_of_a_coordinator_only(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetStatus", STATUS)
    admin.script("ListConditions", monitoring.ListConditionsResponse())
    assert cli("status").out.endswith("\nNothing is wrong.\n")
    admin.script("GetStatus", pb.GetStatusResponse(version="1.2", address="127.0.0.1:9", role="reading"))
    told = cli("status").out
    assert "coordinator        none runs on this state directory\n" in told
    assert "Nothing is wrong" not in told


def test_the_files_for_prometheus_and_grafana_are_written_without_a_coordinator(bare_cli: Cli, tmp_path: Path) -> None:
    result = bare_cli("monitoring", "export", str(tmp_path / "new"))
    assert (result.status, result.err) == (0, "")
    assert result.out.split() == [str(tmp_path / "new" / name) for name in (RULES, SCRAPE, BOARD)]
    kept = ROOT / "deploy" / "monitoring"
    for name in (RULES, SCRAPE, BOARD):
        assert (tmp_path / "new" / name).read_text() == (kept / name).read_text()
    (tmp_path / "file").touch()
    result = bare_cli("monitoring", "export", str(tmp_path / "file"))
    assert (result.status, result.out) == (2, "")
    assert f"{tmp_path}/file/amoro.rules.yml can't be written" in result.err
