"""Places where tests make a process die or fail; no-ops unless AMORO_FAILPOINTS names them.

AMORO_FAILPOINTS holds `name=action` pairs parted by commas, each for the first time the place is reached:
`kill` (SIGKILL to this process), `fail` (raises InjectedFault), or `hold:PATH` (makes the file PATH, so that the
test knows, and goes on when somebody has removed it).
"""

import os
import signal
import time
from pathlib import Path

NAMES = frozenset(
    {
        "plan.before_store",
        "commit.before_intent",
        "commit.after_intent",
        "commit.after_send",
        "task.before_write",
        "task.before_complete",
    }
)

_POLL_S = 0.05

_actions: dict[str, str] = dict(
    pair.split("=", 1) for pair in os.environ.get("AMORO_FAILPOINTS", "").split(",") if "=" in pair
)


class InjectedFault(Exception):
    """Raised by a failpoint that a test has armed."""


def failpoint(name: str) -> None:
    """Do what a test asked for at this place; nothing otherwise. Raises KeyError for an unknown name."""
    if name not in NAMES:
        raise KeyError(name)
    if not _actions:
        return
    match _actions.pop(name, None):
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            raise InjectedFault(name)
        case str() as action if action.startswith("hold:"):
            _hold(Path(action.removeprefix("hold:")))


def _hold(mark: Path) -> None:
    mark.touch()
    while mark.exists():
        time.sleep(_POLL_S)
