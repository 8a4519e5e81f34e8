"""Logs: readable on a terminal, JSON otherwise, always on stderr."""

import logging
import os
import sys
from contextlib import suppress

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

from amoro_core.logger import FIELDS, ROOT
from amoro_core.model.text_sanitizing import without_secrets


class StderrHandler(logging.Handler):
    """Writes records to the present stderr, without secrets; drops them where it can't be written.

    A failing log would roll back the work that it reports.
    """

    def emit(self, record: logging.LogRecord) -> None:
        line = without_secrets(self.format(record))
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def event_formatter(*, human: bool, colours: bool) -> ProcessorFormatter:
    """Formats our events and the lines of libraries; tracebacks without local variables, which hold configurations."""
    without_locals = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    render: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)]
        if human
        else [structlog.processors.ExceptionRenderer(without_locals), structlog.processors.JSONRenderer()]
    )
    return ProcessorFormatter(
        foreign_pre_chain=[_fields, structlog.stdlib.add_log_level],
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            ProcessorFormatter.remove_processors_meta,
            *render,
        ],
    )


def _fields(logger: object, method: str, event: EventDict) -> EventDict:
    """The event with its keys and values, or a library's line with its logger."""
    record = event["_record"]
    return {**event, **getattr(record, FIELDS, {"logger": record.name})}


def configure_logs(level: int = logging.INFO) -> None:
    """Send our events from that level on, and warnings of libraries, to stderr."""
    human = sys.stderr.isatty()
    colours = human and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    handler = StderrHandler()
    handler.setFormatter(event_formatter(human=human, colours=colours))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(ROOT).setLevel(level)
    logging.getLogger("thrift").setLevel(logging.CRITICAL)  # it raises what it logs, which is reported
