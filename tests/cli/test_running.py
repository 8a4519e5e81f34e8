"""What is started, the status, what shells complete, and what is shown on a terminal."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from amoro_cli.connection import Finding, Kind, OptimizerOptions, SparkOptions, UpOptions
from amoro_cli.output import Document, Grid, OutputFormat, Pairs, write
from amoro_cli.progress import Bars, LiveProgress, PlainProgress, progress_report
from amoro_core.documents.prometheus_files import BOARD, RULES, SCRAPE, SCRAPE_JOB, board, rules
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2
from amoro_core.protocol import monitoring_pb2 as monitoring
from tests.cli.conftest import Cli, Terminal, record
from tests.cli.fakes import FakeAdmin, FakeLauncher
from tests.cli.messages import NOON, PROCESS, process

MB = 2**20
CORES = len(os.sched_getaffinity(0))


def optimizer_options(home: Path, **changes: Any) -> OptimizerOptions:
    default = OptimizerOptions("127.0.0.1:1261", "default", CORES, 512 * MB, None, home, timedelta(seconds=10), None)
    return replace(default, **changes)


def test_up_takes_everything_from_options_else_from_settings(bare_cli: Cli, launcher: FakeLauncher, home: Path) -> None:
    assert bare_cli("up", "--home", str(home)).status == 0
    options = "--config a.yaml --host :: --port 0 --threads 3 --memory 1.5GB --without-optimizer"
    assert bare_cli("--home", str(home), "up", *options.split()).status == 0
    assert launcher.calls == [
        UpOptions(home, None, None, None, None, 512 * MB, False),
        UpOptions(home, Path("a.yaml"), "::", 0, 3, 1536 * MB, True),
    ]


def test_the_state_directory_comes_from_the_option_then_the_environment_then_the_users_home(
    bare_cli: Cli, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bare_cli("up")
    monkeypatch.setenv("AMORO_HOME", str(tmp_path / "other"))
    bare_cli("up")
    bare_cli("--home", str(tmp_path / "before"), "up")
    bare_cli("--home", str(tmp_path / "before"), "up", "--home", str(tmp_path / "after"))
    assert [call.home.name for call in launcher.calls] == [".amoro", "other", "before", "after"]
    assert {call.home.parent for call in launcher.calls} == {tmp_path}


def test_an_optimizer_has_the_defaults_of_the_contract_and_takes_amoros_short_options_too(
    bare_cli: Cli, launcher: FakeLauncher, home: Path
) -> None:
    for options in (
        "",
        "--address c:1261 --group g --threads 4 --memory 1GB --token-file t --heartbeat-interval 5s --resource-id r",
        "-a [::1]:1261 -g g -p 4 -hb 5000 -id r",
    ):
        assert bare_cli("optimizer", "run", *options.split(), "--home", str(home)).status == 0
    changes = {"group": "g", "threads": 4, "heartbeat_interval": timedelta(seconds=5), "resource_id": "r"}
    assert launcher.calls == [
        optimizer_options(home),
        optimizer_options(home, address="c:1261", memory_bytes=1024 * MB, token_file=Path("t"), **changes),
        optimizer_options(home, address="[::1]:1261", **changes),
    ]


def test_an_optimizer_finds_the_coordinator_of_the_state_directory_unless_it_is_gone(
    bare_cli: Cli, launcher: FakeLauncher, home: Path, coordinator: str, dead_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_cli("optimizer", "run", "--home", str(home))
    record(home, dead_pid, "127.0.0.1:9")
    bare_cli("optimizer", "run", "--home", str(home))
    monkeypatch.setenv("AMORO_ADDRESS", "elsewhere:1261")
    bare_cli("optimizer", "run", "--home", str(home))
    assert [call.address for call in launcher.calls] == [coordinator, "127.0.0.1:1261", "elsewhere:1261"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *((("-a", one), f"{one!r} is not an address [AMORO-2001]\nHint: Write host:port, such as 127.0.0.1:1261.")
          for one in ("c", "thrift://c:1261", "c:65536", "a b:1")),
        *((words, "--master, --spark-conf and --jars are for Spark [AMORO-2001]\nHint: Add --backend spark.")
          for words in (("--master", "local[2]"), ("--spark-conf", "a=b"), ("--jars", "a.jar"))),
        *((("--backend", "spark", "--spark-conf", setting), f"'{setting}' is not KEY=VALUE") for setting in (
            "spark.executor.memory", "=2g", " =2g"
        )),
    ],
)  # fmt: skip
def test_what_an_optimizer_can_not_be_run_with_is_wrong_usage(
    bare_cli: Cli, launcher: FakeLauncher, options: tuple[str, ...], message: str
) -> None:
    result = bare_cli("optimizer", "run", *options)
    assert (result.status, result.out, message in result.err, launcher.calls) == (2, "", True, [])


def test_the_demo_is_plain_off_a_terminal(bare_cli: Cli, launcher: FakeLauncher, tmp_path: Path) -> None:
    bare_cli("demo")
    bare_cli("demo", "--seconds", "5", "--directory", str(tmp_path), "--plain")
    assert launcher.calls == [(45, None, True), (5, tmp_path, True)]


def test_doctor_shows_what_is_wrong_and_how_to_mend_it(bare_cli: Cli, launcher: FakeLauncher, home: Path) -> None:
    sound, broken = Finding("sqlite", True, "3.46"), Finding("catalog sales", False, "no answer", "check its uri")
    launcher.findings = [sound, broken]
    result = bare_cli("doctor", "--home", str(home), "--config", "c.yaml")
    assert (result.status, result.err) == (1, "")
    assert result.out == (
        "CHECK          STATE   DETAIL\n"
        "sqlite         ok      3.46\n"
        "catalog sales  not ok  no answer\n"
        "To fix catalog sales: check its uri\n"
    )
    assert launcher.calls == [("doctor", home, Path("c.yaml"))]
    body = json.loads(bare_cli("doctor", "-o", "json").out)
    assert (body["schema"], body["ok"]) == ("amoro.findings/v1", False)
    assert body["findings"][1] == {**asdict(broken), "ok": False}
    launcher.findings = [sound]
    result = bare_cli("doctor", "-o", "name")
    assert (result.status, result.out, result.err) == (0, "", "")


def test_an_optimizer_on_spark_has_a_thread_for_each_core(bare_cli: Cli, launcher: FakeLauncher, home: Path) -> None:
    bare_cli("optimizer", "run", "--backend", "spark", "--home", str(home))
    options = (
        "--backend spark --master spark://m:7077 --threads 3 --spark-conf a.b=2g --spark-conf c=d=e --jars /j.jar,k"
    )
    bare_cli("optimizer", "run", *options.split(), "--home", str(home))
    spark = SparkOptions("spark://m:7077", (("a.b", "2g"), ("c", "d=e")), ("/j.jar", "k"))
    assert launcher.calls == [
        optimizer_options(home, threads=None, spark=SparkOptions(None)),
        optimizer_options(home, threads=3, spark=spark),
    ]


def test_the_shell_is_offered_commands_and_names_of_the_state_directory_that_is_meant_if_safe_to_print(
    bare_cli: Cli, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path
) -> None:
    launcher.known = {
        Kind.TABLE: ["cat.db.orders", "cat.db.`odd name`", "other.db.t", "cat.db.\x1b[2J"],
        Kind.PROCESS: ["0199-a", "0199-b"],
        Kind.OPTIMIZER: ["0198-o"],
    }
    monkeypatch.setenv("AMORO_HOME", str(home))
    monkeypatch.setenv("_AMORO_COMPLETE", "complete_bash")

    def typed(words: str) -> list[str]:
        """What bash offers for the last word."""
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        result = bare_cli()
        assert (result.status, result.err) == (0, "")
        return [line for line in result.out.split("\n") if line]

    for words, offered in (
        ("amoro opt", ["optimize", "optimizer"]),
        ("amoro plan cat", ["cat.db.orders", "cat.db.`odd name`"]),
        ("amoro table show x", []),
        ("amoro process show ", ["0199-a", "0199-b"]),
        ("amoro optimizer release ", ["0198-o"]),
        ("amoro optimize cat.db.orders o", ["other.db.t"]),
        ("amoro table list --sort-by health,-fi", ["health,-files"]),
    ):
        assert typed(words) == offered
    launcher.calls.clear()
    typed("amoro plan cat")
    typed(f"amoro --home {tmp_path} plan cat")
    assert launcher.calls == [("names", Kind.TABLE, home), ("names", Kind.TABLE, tmp_path)]


def test_completion_loads_nothing_that_takes_its_time(tmp_path: Path) -> None:
    program = (
        "import sys, json, atexit;"
        "atexit.register(lambda: print(json.dumps(sorted({'grpc', 'pyarrow', 'pyiceberg', 'sqlite_utils', 'structlog',"
        "'rich', 'yaml'} & set(sys.modules))), file=sys.stderr));"
        "from amoro_core.__main__ import main; main()"
    )
    typed = {"_AMORO_COMPLETE": "complete_bash", "COMP_WORDS": "amoro plan c", "COMP_CWORD": "2"}
    environment = {"AMORO_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path), **typed}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600)
    assert (done.returncode, json.loads(done.stderr)) == (0, [])


LINES = Grid(("ID", "STATUS", "SIZE"), (("a" * 100, "failed", "1"), ("客", "[b]", "10")), frozenset({"SIZE"}), indent=2)
SHOWN = ("head [red]line[/red]", LINES, Pairs((("status", "success"),)))
DOCUMENT = Document("amoro.example/v1", {}, (), SHOWN)
PLAIN = (
    "head [red]line[/red]\n"
    f"  ID{' ' * 98}  STATUS  SIZE\n"
    f"  {'a' * 100}  failed     1\n"
    f"  客{' ' * 98}  [b]       10\n"
    "status  success\n"
)


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)


def test_on_a_terminal_the_same_lines_have_colours_and_ids_stay_whole() -> None:
    stream = io.StringIO()
    write(DOCUMENT, OutputFormat.TABLE, stream)
    assert stream.getvalue() == PLAIN
    stream = Terminal()
    write(DOCUMENT, OutputFormat.TABLE, stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "head [red]line[/red]"
    assert lines[1] == f"  \x1b[1mID{' ' * 98}\x1b[0m  \x1b[1mSTATUS\x1b[0m  \x1b[1mSIZE\x1b[0m"
    assert lines[2] == f"  {'a' * 100}  \x1b[31mfailed\x1b[0m     1"
    assert lines[4] == "\x1b[1mstatus\x1b[0m  \x1b[32msuccess\x1b[0m"


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_colours_gets_none(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    stream = Terminal()
    write(DOCUMENT, OutputFormat.TABLE, stream)
    assert stream.getvalue() == PLAIN
    for plain in (io.StringIO(), *([Terminal()] if value == "dumb" else [])):
        with progress_report(plain) as report:
            assert isinstance(report, PlainProgress)


def test_progress_is_live_on_a_terminal_and_ends_with_a_clean_line() -> None:
    stream = Terminal()
    with progress_report(stream) as report:
        assert isinstance(report, LiveProgress)
        report.note("planned [x]")
        report.show(process("running", tasks_done=1, input_bytes=100, busy_optimizers=1))
        report.show(process("committing", tasks_done=3, input_bytes=100, input_bytes_done=100))
    text = stream.getvalue()
    assert "planned [x]\n" in text
    assert PROCESS[-8:] in text
    assert text.endswith("\x1b[1A\x1b[2K")


ROWS = (
    ("01997a4c-7f3a-7000-8000-00000000000a", "sales.db.orders_of_the_year", "running", "why this one runs, at length"),
    ("01997a4c-7f3a-7000-8000-00000000000b", "a.b.c", "failed", "-"),
)
GRID = Grid(("PROCESS", "TABLE", "STATUS", "WHY"), ROWS, spare=("WHY", "STATUS"), elastic="TABLE")
ANSWER = Document("amoro.example/v1", {}, (), (GRID,))


def shown(columns: int, form: OutputFormat = OutputFormat.TABLE, stream: io.StringIO | None = None) -> list[str]:
    """The lines on a terminal of so many columns, without colours."""
    out = stream or Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("NO_COLOR", "1")
        write(ANSWER, form, out)
    return out.getvalue().splitlines()


def test_a_list_fits_its_terminal_by_leaving_out_columns_that_can_be_spared_and_never_ids() -> None:
    assert shown(110)[0].split() == ["PROCESS", "TABLE", "STATUS", "WHY"]
    assert shown(80)[0].split() == ["PROCESS", "TABLE", "STATUS"]
    assert shown(80)[-1] == "Not shown for lack of room: why; -o wide shows all columns."
    assert max(len(line) for line in shown(80)) <= 80
    assert shown(70)[-1] == "Not shown for lack of room: status, why; -o wide shows all columns."
    assert shown(60)[1] == "01997a4c-7f3a-7000-8000-00000000000a  sales.db.orders_of_th…"
    assert shown(20)[1] == "01997a4c-7f3a-7000-8000-00000000000a  sales.db.or…"
    whole = shown(200)
    assert len(whole) == 3
    assert shown(40, OutputFormat.WIDE) == shown(40, stream=io.StringIO()) == whole


def test_names_that_would_break_a_line_or_turn_it_round_are_escaped_and_exact_in_json() -> None:
    name = "a\nb\u202egnp\x1b[31m"
    document = Document("amoro.example/v1", {"name": name}, (name,), (name, Pairs((("name", name),))))
    text, names, data = io.StringIO(), io.StringIO(), io.StringIO()
    write(document, OutputFormat.TABLE, text)
    write(document, OutputFormat.NAME, names)
    write(document, OutputFormat.JSON, data)
    escaped = r"a\nb\u202egnp\x1b[31m"
    assert text.getvalue() == f"{escaped}\nname  {escaped}\n"
    assert names.getvalue() == f"{escaped}\n"
    assert json.loads(data.getvalue())["name"] == name


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_the_bar_has_room_and_its_line_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    bars = Bars(stream, named=False)
    figures = {"input_bytes": 100 * 2**20, "input_bytes_done": 50 * 2**20, "busy_optimizers": 1}
    bars.draw([process("running", tasks_done=118, tasks_total=120, **figures)])
    (line,) = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines() if line.strip()]
    assert line.startswith(f"{PROCESS[-8:]} ")
    assert line.count("━") + line.count("╸") + line.count("╺") >= 20
    assert "running, 118/120 tasks" in line
    assert ("50 MB of 100 MB" in line, "1 optimizer" in line) == (columns >= 110, columns >= 117)
    assert len(line) <= columns


def test_an_archive_for_executors_is_made_and_its_use_is_told(bare_cli: Cli, launcher: FakeLauncher) -> None:
    result = bare_cli("optimizer", "package", "--file", "a.tar.gz", "--include", "s3fs", "--without-interpreter")
    assert (result.status, result.err) == (0, "")
    assert launcher.calls == [(Path("a.tar.gz"), "s3fs", False)]
    assert result.out == (
        "archive         made.tar.gz\n"
        "size            1.5 MB\n"
        "python          3.11\n"
        "executors need  nothing\n"
        "distributions   2\n"
        "Use it with: amoro optimizer run --backend spark --master MASTER --spark-conf spark.archives=made.tar.gz#amoro"
        " --spark-conf spark.pyspark.python=./amoro/bin/python\n"
    )
    body = json.loads(bare_cli("optimizer", "package", "-o", "json").out)
    assert (body["schema"], body["size_bytes"]) == ("amoro.package/v1", 1572864)
    assert body["distributions"][1] == {"name": "pyarrow", "version": "26.0"}
    assert launcher.calls[-1] == (None, True)


COORDINATOR = pb.GetStatusResponse(version="1.2", started_ms=NOON, address="here:1", tables=1234, pid=77, role="leader")


def condition(name: str, *, raised: bool = True) -> monitoring.Condition:
    return monitoring.Condition(
        name=name, severity="page", raised=raised, text=f"{name} in group a", labels={"group": "a"}, value=2,
        since_ms=NOON, remedy=f"Mend {name}.",
    )  # fmt: skip


def test_listeners_are_listed_with_what_fails_and_resumed(cli: Cli, admin: FakeAdmin) -> None:
    hooks = journal_pb2.Listener(
        name="hooks", target="https://x.org", state="paused", event_id=7, pending_ms=NOON, failures=3, failure="[A] no",
        lost_events=2,
    )  # fmt: skip
    admin.script("ListListeners", journal_pb2.ListListenersResponse(listeners=[hooks], total=1))
    assert cli("listener", "list").out.splitlines() == [
        "LISTENER  TO             STATE   EVENT  BEHIND SINCE          LOST  FAILURE",
        "hooks     https://x.org  paused      7  2026-09-21 14:13:20Z     2  [A] no",
    ]
    assert json.loads(cli("listener", "list", "-o", "json").out)["listeners"][0]["lost_events"] == 2
    admin.script("ResumeListener", journal_pb2.Listener(name="hooks", state="ok"))
    assert cli("listener", "resume", "hooks").out == "Listener hooks gets events again.\n"
    assert admin.asked("ResumeListener") == [journal_pb2.ResumeListenerRequest(name="hooks")]


def test_what_is_wrong_is_told_with_what_to_do(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetStatus", COORDINATOR)
    found = [condition("tasks-wait"), condition("tasks-wait"), condition("disk-low", raised=False)]
    admin.script("ListConditions", monitoring.ListConditionsResponse(conditions=found))
    result = cli("status")
    assert (result.status, result.err) == (1, "")
    assert result.out.endswith(
        "CONDITION   SEVERITY  SINCE                 WHAT\n"
        "tasks-wait  page      2026-09-21 14:13:20Z  tasks-wait in group a\n"
        "tasks-wait  page      2026-09-21 14:13:20Z  tasks-wait in group a\n"
        "\n"
        "tasks-wait: Mend tasks-wait.\n"
        "Not for long enough to be reported: disk-low\n"
    )
    told = json.loads(cli("status", "-o", "json").out)
    assert (told["schema"], told["tables"]) == ("amoro.status/v1", 1234)
    assert told["conditions"][0]["labels"] == {"group": "a"}
    assert [one["raised"] for one in told["conditions"]] == [True, True, False]
    assert cli("status", "-o", "name").out == "tasks-wait\ntasks-wait\ndisk-low\n"


def test_nothing_wrong_is_told_of_a_coordinator_and_what_can_wait_is_no_failure(cli: Cli, admin: FakeAdmin) -> None:
    admin.script("GetStatus", COORDINATOR)
    admin.script("ListConditions", monitoring.ListConditionsResponse())
    assert cli("status").out.endswith("\nNothing is wrong.\n")
    admin.script("GetStatus", pb.GetStatusResponse(version="1.2", address="127.0.0.1:9", role="reading"))
    told = cli("status").out
    assert "coordinator        none runs on this state directory\n" in told
    assert "Nothing is wrong" not in told
    admin.script("GetStatus", pb.GetStatusResponse(role="leader", failing_tables=1))
    admin.script("ListConditions", monitoring.ListConditionsResponse(conditions=[condition("x", raised=False)]))
    told = cli("status")
    assert told.status == 0
    assert "1 table is failing: amoro table list --state failing\n" in told.out
    assert "Nothing is wrong" not in told.out
    looks = monitoring.Condition(name="backlog", severity="look", raised=True)
    admin.script("ListConditions", monitoring.ListConditionsResponse(conditions=[looks]))
    assert cli("status").status == 0


def test_the_status_is_watched_until_ctrl_c(cli: Cli, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        assert seconds == 5
        if len(admin.asked("GetStatus")) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    admin.script("GetStatus", COORDINATOR)
    same, other = monitoring.ListConditionsResponse(), monitoring.ListConditionsResponse(conditions=[condition("x")])
    admin.script("ListConditions", same, same, other)
    result = cli("status", "--watch", "--interval", "5s")
    assert result.status == 0
    assert result.out.count("version            1.2\n") == 2
    assert result.out.endswith("\nx: Mend x.\n")


def test_the_files_for_prometheus_and_grafana_are_written_without_a_coordinator(bare_cli: Cli, tmp_path: Path) -> None:
    result = bare_cli("monitoring", "export", str(tmp_path / "new"))
    assert (result.status, result.err) == (0, "")
    assert result.out.split() == [str(tmp_path / "new" / name) for name in (RULES, SCRAPE, BOARD)]
    for name, text in ((RULES, rules()), (SCRAPE, SCRAPE_JOB), (BOARD, board())):
        assert (tmp_path / "new" / name).read_text() == text
    (tmp_path / "file").touch()
    result = bare_cli("monitoring", "export", str(tmp_path / "file"))
    assert (result.status, result.out) == (2, "")
    assert f"{tmp_path}/file/amoro.rules.yml can't be written" in result.err
