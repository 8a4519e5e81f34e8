"""What holds for all tests."""

import logging
import signal

import pytest
from hypothesis import settings

from amoro_core.events import ROOT

# A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# As in CI: no limit on the time of one example, and the same examples in each run.
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _logs_as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of another test in this process may have set up the logs, and its stderr is closed by now."""
    ours = logging.getLogger(ROOT)
    monkeypatch.setattr(ours, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(ours, "propagate", True)
    ours.setLevel(logging.NOTSET)
    others = logging.getLogger()
    kept = [handler for handler in others.handlers if type(handler) is not logging.StreamHandler]
    monkeypatch.setattr(others, "handlers", kept)
