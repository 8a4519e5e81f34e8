"""Logs are lines on stderr, and never the reason why work fails."""

import io
import logging
import os
import subprocess
import sys

import pytest

from amoro_core.logs import TRACEBACKS, LineFormatter, StderrLogger


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_line_that_nobody_can_read_any_more_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (closed, Full()):
        monkeypatch.setattr(sys, "stderr", stream)
        StderrLogger().info("lost")
    kept = io.StringIO()
    monkeypatch.setattr(sys, "stderr", kept)
    StderrLogger().error("kept")
    assert kept.getvalue() == "kept\n"


def test_tracebacks_of_logs_hold_no_local_variables_and_lines_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        configuration = ["hush", "hush"]
        raise ValueError(len(configuration))

    try:
        fail()
    except ValueError as error:
        rendered = TRACEBACKS(None, "error", {"event": "x", "exc_info": error})
    assert "fail" in str(rendered)
    assert "hush" not in str(rendered)
    kept = io.StringIO()
    monkeypatch.setattr(sys, "stderr", kept)
    StderrLogger().info('{"event": "x", "uri": "http://me:hush@host", "password": "hush"}')
    record = logging.LogRecord("pyiceberg", logging.WARNING, "", 1, "token=%s", ("hush",), None)
    assert "hush" not in kept.getvalue() + LineFormatter().format(record)


def _on_a_terminal(**environment: str) -> str:
    """What a line of our log is on a real terminal."""
    ours, theirs = os.openpty()
    program = (
        "import structlog; from amoro_core.logs import configure_logs; configure_logs();"
        "structlog.get_logger('x').info('task.completed', process='p', task=3)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path), "TERM": "xterm-256color", **environment}
    with os.fdopen(ours, "rb", buffering=0) as screen:
        subprocess.run([sys.executable, "-c", program], stderr=theirs, env=environment, timeout=60, check=True)
        os.close(theirs)
        return screen.read(10_000).decode()


def test_on_a_terminal_lines_are_for_people_and_coloured_where_it_wants_that() -> None:
    assert "\x1b[" in _on_a_terminal()
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        line = _on_a_terminal(**plain)
        assert "\x1b" not in line
        assert line.split()[1:] == ["[info", "]", "task.completed", "process=p", "task=3"]
