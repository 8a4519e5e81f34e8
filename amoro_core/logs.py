"""Logs: human on a terminal, JSON otherwise, always on stderr."""

import logging
import os
import sys
import threading
from contextlib import suppress

import structlog

from amoro_core.model.secrets import without_secrets

TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


class LineFormatter(logging.Formatter):
    """Lines of the libraries beneath, without the secrets that they may name."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class StderrLogger:
    """Writes lines to what stderr is at that moment; where nobody can read them any more they are dropped.

    A log that fails would take back the work that it is about.
    """

    _lock = threading.Lock()

    def msg(self, message: str) -> None:
        """Write one line."""
        with self._lock, suppress(OSError, ValueError):
            sys.stderr.write(f"{without_secrets(message)}\n")
            sys.stderr.flush()

    log = debug = info = warn = warning = error = exception = critical = fatal = failure = err = msg


def configure_logs(level: int = logging.INFO) -> None:
    """Send our events, and warnings of the libraries beneath, to stderr."""
    human = sys.stderr.isatty()
    colours = human and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    lines = structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Tracebacks without local variables, which hold configurations whole.
            lines if human else TRACEBACKS,
            *([] if human else [structlog.processors.JSONRenderer()]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *names: StderrLogger(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(logging.BASIC_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def quieten_logs() -> None:
    """Keep our events to warnings on stderr in a program that is not ours, unless it has set up structlog itself."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=lambda *names: StderrLogger(),
        )
