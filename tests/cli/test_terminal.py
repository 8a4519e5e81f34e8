import io
import json
import re

import pytest

from amoro_cli.output import Document, Grid, OutputFormat, Pairs, fit, write
from amoro_cli.progress import Bars, LiveProgress, PlainProgress, progress_report
from tests.cli.messages import PROCESS, process

DOCUMENT = Document(
    "amoro.example/v1",
    {},
    (),
    (
        "head [red]line[/red]",
        Grid(
            ("ID", "STATUS", "SIZE"), (("a" * 100, "failed", "1"), ("客", "[b]", "10")), frozenset({"SIZE"}), indent=2
        ),
        Pairs((("status", "success"),)),
    ),
)
PLAIN = (
    "head [red]line[/red]\n"
    f"  ID{' ' * 98}  STATUS  SIZE\n"
    f"  {'a' * 100}  failed     1\n"
    f"  客{' ' * 98}  [b]       10\n"
    "status  success\n"
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)


def test_off_a_terminal_columns_are_plain_and_nothing_is_cut_off() -> None:
    stream = io.StringIO()
    write(DOCUMENT, OutputFormat.TABLE, stream)
    assert stream.getvalue() == PLAIN


def test_on_a_terminal_the_same_lines_have_colours_and_ids_stay_whole() -> None:
    stream = Terminal()
    write(DOCUMENT, OutputFormat.TABLE, stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "head [red]line[/red]"
    assert lines[1] == f"  \x1b[1mID{' ' * 98}\x1b[0m  \x1b[1mSTATUS\x1b[0m  \x1b[1mSIZE\x1b[0m"
    assert lines[2] == f"  {'a' * 100}  \x1b[31mfailed\x1b[0m     1"
    assert lines[4] == "\x1b[1mstatus\x1b[0m  \x1b[32msuccess\x1b[0m"


def test_a_terminal_that_wants_no_colours_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    write(DOCUMENT, OutputFormat.TABLE, stream)
    assert stream.getvalue() == PLAIN
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    write(DOCUMENT, OutputFormat.TABLE, stream)
    assert stream.getvalue() == PLAIN


def test_progress_is_live_on_a_terminal_and_ends_with_a_clean_line() -> None:
    stream = Terminal()
    with progress_report(stream) as report:
        assert isinstance(report, LiveProgress)
        report.note("planned [x]")
        report.show(process("running", tasks_done=1, input_bytes=100, busy_optimizers=1))
        report.show(process("committing", tasks_done=3, input_bytes=100, input_bytes_done=100))
    text = stream.getvalue()
    assert "planned [x]\n" in text
    assert PROCESS[:13] in text
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


def test_a_list_fits_its_terminal_by_leaving_out_columns_that_can_be_spared() -> None:
    assert shown(110)[0].split() == ["PROCESS", "TABLE", "STATUS", "WHY"]
    assert shown(80)[0].split() == ["PROCESS", "TABLE", "STATUS"]
    assert shown(80)[-1] == "Not shown for lack of room: why; -o wide shows all columns."
    assert max(len(line) for line in shown(80)) <= 80
    assert shown(70)[0].split() == ["PROCESS", "TABLE"]
    assert shown(70)[-1] == "Not shown for lack of room: status, why; -o wide shows all columns."


def test_what_still_does_not_fit_is_cut_and_ids_never_are() -> None:
    assert shown(60)[1] == "01997a4c-7f3a-7000-8000-00000000000a  sales.db.orders_of_th…"
    assert shown(20)[1] == "01997a4c-7f3a-7000-8000-00000000000a  sales.db.or…"


def test_all_columns_come_where_they_are_asked_for_and_off_a_terminal() -> None:
    whole = shown(200)
    assert shown(40, OutputFormat.WIDE) == whole
    assert shown(40, stream=io.StringIO()) == whole
    assert len(whole) == 3


def test_of_a_path_that_is_cut_the_end_is_kept() -> None:
    grid = Grid(("PATH",), (("file:///lake/warehouse/db/t/data/part-0.parquet",),), elastic="PATH")
    assert fit(grid, 20).rows == (("…data/part-0.parquet",),)


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
    assert line.startswith(f"{PROCESS[:13]} ")
    assert line.count("━") + line.count("╸") + line.count("╺") >= 20
    assert "running, 118/120 tasks" in line
    assert ("50 MB of 100 MB" in line, "1 optimizer" in line) == (columns >= 110, columns >= 117)
    assert len(line) <= columns


def test_progress_is_plain_on_a_dumb_terminal_and_off_any(monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_report(io.StringIO()) as report:
        assert isinstance(report, PlainProgress)
    monkeypatch.setenv("TERM", "dumb")
    with progress_report(Terminal()) as report:
        assert isinstance(report, PlainProgress)
