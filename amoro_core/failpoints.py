"""Places where tests make a process die or fail; no-ops unless AMORO_FAILPOINTS names them.

AMORO_FAILPOINTS holds `name=action` pairs parted by commas; an action is `kill` (SIGKILL to this
process) or `fail` (raises InjectedFault, once).
"""

import os
import signal

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
