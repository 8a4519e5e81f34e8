"""Logs: readable on a terminal, JSON otherwise, always on stderr."""

import logging
import os
import sys
import threading
from contextlib import suppress
from typing import Any

import structlog

from amoro_core.logger import FIELDS, ROOT
from amoro_core.model.text_sanitizing import without_secrets

_STAMP = structlog.processors.TimeStamper(fmt="iso", utc=True)
TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


class LineFormatter(logging.Formatter):
    """Formats lines of libraries, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class StderrLogger:
    """Writes lines to the present stderr; if it can't be written, they are dropped.

    A failing log would roll back the work that it reports.
    """

    _lock = threading.Lock()

    def msg(self, message: str) -> None:
        """Write one line."""
        with self._lock, suppress(OSError, ValueError):
            sys.stderr.write(f"{without_secrets(message)}\n")
            sys.stderr.flush()

    log = debug = info = warn = warning = error = exception = critical = fatal = failure = err = msg


class EventFormatter(logging.Formatter):
    """Formats our events: readable on a terminal, JSON elsewhere; tracebacks without local variables."""

    def __init__(self, *, human: bool, colours: bool) -> None:
        super().__init__()
        lines = structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)
        # Tracebacks without local variables, which contain whole configurations.
        self._render: tuple[structlog.typing.Processor, ...] = (
            (_STAMP, lines) if human else (_STAMP, TRACEBACKS, structlog.processors.JSONRenderer())
        )

    def format(self, record: logging.LogRecord) -> str:
        line: Any = {**getattr(record, FIELDS, {"event": record.getMessage()}), "level": record.levelname.lower()}
        if record.exc_info:
            line["exc_info"] = record.exc_info
        for step in self._render:
            line = step(None, record.levelname.lower(), line)
        return str(line)


class StderrHandler(logging.Handler):
    """Writes each record as a line by a StderrLogger."""

    def emit(self, record: logging.LogRecord) -> None:
        StderrLogger().msg(self.format(record))


def configure_logs(level: int = logging.INFO) -> None:
    """Send our events from that level on, and warnings of libraries, to stderr."""
    human = sys.stderr.isatty()
    colours = human and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    ours = StderrHandler()
    ours.setFormatter(EventFormatter(human=human, colours=colours))
    root = logging.getLogger(ROOT)
    root.handlers = [ours]
    root.propagate = False
    root.setLevel(level)
    theirs = logging.StreamHandler(sys.stderr)
    theirs.setFormatter(LineFormatter(logging.BASIC_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[theirs], force=True)
    logging.getLogger("thrift").setLevel(logging.CRITICAL)  # it raises what it logs, and that is told
