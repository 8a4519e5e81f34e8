import io

import pytest

from amoro_cli.output import Document, Grid, OutputFormat, Pairs, write
from amoro_cli.progress import LiveProgress, PlainProgress, progress_report
from tests.cli.messages import PROCESS, process, task

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
        report.show(process("running", tasks_done=1, tasks=[task()]))
        report.show(process("committing", tasks_done=3, tasks=[task(status="success", finished_ms=1)]))
    text = stream.getvalue()
    assert "planned [x]\n" in text
    assert PROCESS[:13] in text
    assert text.endswith("\x1b[1A\x1b[2K")


def test_progress_is_plain_on_a_dumb_terminal_and_off_any(monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_report(io.StringIO()) as report:
        assert isinstance(report, PlainProgress)
    monkeypatch.setenv("TERM", "dumb")
    with progress_report(Terminal()) as report:
        assert isinstance(report, PlainProgress)
