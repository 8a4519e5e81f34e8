"""Logs are lines on stderr, and never the reason why work fails."""

import io
import sys

import pytest

from amoro_core.logs import StderrLogger


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
