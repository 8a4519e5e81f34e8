"""Logs are lines on stderr, and never the reason why work fails."""

import io
import json
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
        "from amoro_core.events import get_logger; from amoro_core.logs import configure_logs; configure_logs();"
        "get_logger('amoro.x').info('task.completed', process='p', task=3)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path), "TERM": "xterm-256color", **environment}
    with os.fdopen(ours, "rb", buffering=0) as screen:
        subprocess.run([sys.executable, "-c", program], stderr=theirs, env=environment, timeout=120, check=True)
        os.close(theirs)
        return screen.read(10_000).decode()


def test_on_a_terminal_lines_are_for_people_and_coloured_where_it_wants_that() -> None:
    assert "\x1b[" in _on_a_terminal()
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        line = _on_a_terminal(**plain)
        assert "\x1b" not in line
        assert line.split()[1:] == ["[info", "]", "task.completed", "process=p", "task=3"]


def _as_a_library(program: str) -> subprocess.CompletedProcess[str]:
    """A program that is not ours, in which our loops and services tell of three things."""
    events = (
        "import json, logging, sys; from amoro_core.events import get_logger; log = get_logger('amoro.x')\n"
        f"{program}\n"
        "log.info('task.completed', process='p')\n"
        "log.warning('task.reset', task='p-1', reason='its thread is silent')\n"
        "try:\n    raise ValueError(3)\nexcept ValueError:\n    log.exception('loop.failed', loop='keeper')\n"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", events], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    assert done.stdout == ""
    return done


def test_a_program_that_says_nothing_about_logging_hears_nothing_of_the_library() -> None:
    assert _as_a_library("").stderr == ""


def test_a_program_gets_events_of_the_library_where_its_own_logging_goes() -> None:
    assert _as_a_library("logging.basicConfig(format='%(name)s %(levelname)s %(message)s')").stderr.splitlines() == [
        "amoro.x WARNING task.reset task=p-1 reason=its thread is silent",
        "amoro.x ERROR loop.failed loop=keeper",
        "Traceback (most recent call last):",
        '  File "<string>", line 6, in <module>',
        "ValueError: 3",
    ]


def test_a_program_that_has_set_up_structlog_for_itself_keeps_that() -> None:
    own = "import structlog; structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))"
    assert _as_a_library(own).stderr == ""


def test_off_a_terminal_events_of_a_service_are_json_with_tracebacks_and_each_stands_there_once() -> None:
    lines = [
        json.loads(line)
        for line in _as_a_library(
            "from amoro_core.logs import configure_logs; configure_logs(); configure_logs()"
        ).stderr.splitlines()
    ]
    assert [sorted(line) for line in lines] == [
        ["event", "level", "process", "timestamp"],
        ["event", "level", "reason", "task", "timestamp"],
        ["event", "exception", "level", "loop", "timestamp"],
    ]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("task.completed", "info"),
        ("task.reset", "warning"),
        ("loop.failed", "error"),
    ]
