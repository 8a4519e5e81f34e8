"""stdout and stderr of a command: what happens when they are closed, full, or lack characters."""

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

from amoro_core.errors import OutputUnwritable


class Output(io.TextIOWrapper):
    """stdout of one command on top of the program's; `failure` is why the last write failed.

    A failed write raises OutputUnwritable, or BrokenPipeError when the reader has gone, as with `| head`.
    """

    failure: OSError | OutputUnwritable | None = None

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> OSError | OutputUnwritable:
        gone = isinstance(error, BrokenPipeError)
        self.failure = error if gone else OutputUnwritable(f"stdout can't be written: {error.strerror}")
        return self.failure


class Streams:
    """The standard streams of the program, made usable for one command whatever state they are in.

    Writes to a closed stream are dropped; characters that a stream can't encode, such as ✓, are escaped.
    """

    def __init__(self) -> None:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                setattr(sys, name, _nowhere())
        if isinstance(sys.stderr, io.TextIOWrapper):
            sys.stderr.reconfigure(errors="backslashreplace")
        self._given = sys.stdout
        self._own: Output | None = None
        if isinstance(self._given, io.TextIOWrapper):
            self._given.flush()
            self._own = sys.stdout = Output(
                self._given.buffer,
                encoding=self._given.encoding,
                errors="backslashreplace",
                line_buffering=self._given.line_buffering,
                write_through=self._given.write_through,
            )

    def settle(self, status: int) -> int:
        """Flush and restore the streams. Returns the status, or 1 instead of 0 when stdout fails."""
        status = status if self._own is None else self._settle_output(self._own, status)
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            sys.stderr = _nowhere()
        return status

    def _settle_output(self, own: Output, status: int) -> int:
        with suppress(OSError, OutputUnwritable):
            own.flush()
        if own.failure is None:
            own.detach()
            sys.stdout = self._given
            return status
        if isinstance(own.failure, OutputUnwritable):
            tell(f"Error: {own.failure.message} [{own.failure.code}]")
        sys.stdout = _nowhere()
        return status or 1


def tell(text: str, stream: TextIO | None = None) -> None:
    """Write a line to the stream (stderr). A line that can't be written is dropped: no command fails for a remark."""
    out = stream or sys.stderr
    with suppress(OSError, ValueError):
        out.write(f"{text}\n")
        out.flush()


def _nowhere() -> TextIO:
    """A null stream: data left in a failing stream would be written again as the program ends."""
    return open(os.devnull, "w")
