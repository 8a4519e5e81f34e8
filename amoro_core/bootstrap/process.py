"""Logs and signals of this operating-system process."""

import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

from amoro_core.logger import FIELDS, ROOT, get_logger
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


#: Files and sockets at once that a busy coordinator or optimizer may need.
OPEN_FILES = 1024
RAISE_OPEN_FILES = "Raise it: `ulimit -n 4096` in the shell that starts it, LimitNOFILE=4096 in a unit of systemd."


def few_open_files() -> str:
    """How many files this process may open at once, in words, if these are too few; else ""."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # -1: any number
    return f"this process may open {limit} files at once, {OPEN_FILES} are needed" if 0 <= limit < OPEN_FILES else ""


def configure_logs(level: int = logging.INFO) -> None:
    """Send our events from that level on, and warnings of libraries, to stderr; warn of too few open files."""
    human = sys.stderr.isatty()
    colours = human and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    handler = StderrHandler()
    handler.setFormatter(event_formatter(human=human, colours=colours))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(ROOT).setLevel(level)
    logging.getLogger("thrift").setLevel(logging.CRITICAL)  # it raises what it logs, which is reported
    if few := few_open_files():
        get_logger("amoro.process").warning("process.few_open_files", why=few, hint=RAISE_OPEN_FILES)


_ENDING = (signal.SIGTERM, signal.SIGINT)
#: No signal has this number.
_END = b"\0"


@contextmanager
def on_signals(act: Callable[[bool], object]) -> Iterator[None]:
    """Call `act` on SIGTERM and SIGINT, in a thread of its own; its argument is True from the second signal on.

    The thread reads signals from a pipe into which the interpreter writes them as they come. A Python handler would run
    between two steps of the main thread: not at all while that thread waits for a lock, if another one got the signal,
    or if it came just before the wait. For the main thread alone, as handlers are.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def listen() -> None:
        again = False
        while (number := os.read(reading, 1)) != _END:
            if number[0] in _ENDING:
                act(again)
                again = True

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    outer = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = {number: signal.signal(number, _ignore) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(outer)
        os.write(writing, _END)
        listener.join()
        os.close(reading)
        os.close(writing)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the pipe has the signal."""
