"""Places where tests kill or fail a process; no-ops unless AMORO_FAILPOINTS names them.

AMORO_FAILPOINTS holds comma-separated `name=action` pairs, each for the first time the place is reached:
`kill` (SIGKILL to this process), `fail` (raises InjectedFault), or `hold:PATH` (creates the file PATH and waits until
it is removed). `allow` switches a check off, permanently.
"""

import os
import signal
import time
from pathlib import Path

#: Between every two lasting effects: writes of the database (store), of the table (stage, send, remove) and of files.
NAMES = frozenset(
    {
        # Coordinator, while it plans.
        "plan.after_mark",
        "plan.before_store",
        "plan.after_store",
        "start.before_store",
        "start.after_store",
        # Coordinator, while tasks are scheduled and reported.
        "poll.after_store",
        "ack.after_store",
        "complete.before_store",
        "complete.after_store",
        "cancel.after_store",
        # Coordinator, while it commits.
        "commit.before_intent",
        "commit.after_carried",
        "commit.after_stage",
        "commit.after_intent",
        "commit.after_send",
        "commit.after_done",
        "commit.after_loss",
        "commit.after_failure",
        "commit.before_resend",
        "gather.before_store",
        "gather.after_store",
        "clean.after_file",
        "clear.before_delete",
        "clear.after_delete",
        "clear.after_condemning",
        "clear.after_done",
        "sweep.before_guard",
        "sweep.before_delete",
        "sweep.before_move",
        "sweep.after_move",
        "sweep.after_delete",
        "sweep.after_batch",
        "trash.before_return",
        "trash.after_return",
        "ack.after_guard",
        # Coordinator, while it starts and ends instances of groups.
        "instance.before_store",
        "instance.after_store",
        "instance.after_start",
        "instance.after_handle",
        "instance.after_drain",
        # Optimizer.
        "task.before_ack",
        "task.before_write",
        "task.after_file",
        "task.before_delete",
        "task.after_delete",
        "task.before_complete",
        "task.after_complete",
    }
)

_POLL_S = 0.05

_actions: dict[str, str] = {}


class InjectedFault(Exception):
    """Raised by a failpoint that a test has armed."""


def arm(actions: str) -> None:
    """Replace the armed actions by these: pairs as AMORO_FAILPOINTS holds them."""
    _actions.clear()
    pairs = (pair.partition("=") for pair in actions.split(",") if "=" in pair)
    _actions.update((name, action) for name, _, action in pairs)


def failpoint(name: str) -> None:
    """Run the action that is armed for this place, if any. Raises KeyError for an unknown name."""
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


def allowed(check: str) -> bool:
    """Whether a test has switched this check off, such as "file.pipe" for a file whose reads block."""
    return _actions.get(check) == "allow"


def _hold(mark: Path) -> None:
    mark.touch()
    while mark.exists():
        time.sleep(_POLL_S)


arm(os.environ.get("AMORO_FAILPOINTS", ""))
