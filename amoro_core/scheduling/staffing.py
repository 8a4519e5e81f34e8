"""Whether any optimizer takes the tasks of a group, and what to do when none does."""

from collections.abc import Iterable, Sequence

from amoro_core.model.containers import EXTERNAL, InstancesView
from amoro_core.records import record


@record
class Member:
    """A registered optimizer of the group."""

    is_draining: bool = False
    is_heard: bool = True  # since the coordinator started
    kinds: tuple[str, ...] = ()  # of work that it knows

    @property
    def takes_tasks(self) -> bool:
        """Whether it is alive and takes new tasks."""
        return self.is_heard and not self.is_draining


def nobody_works(group: str, container: str, members: Sequence[Member], kept: InstancesView) -> str:
    """Why no optimizer takes tasks of the group, and the remedy; "" when one does."""
    if any(member.takes_tasks for member in members):
        return ""
    return f"{_why(group, members)}: {_what_next(group, container, kept)}"


def nobody_knows(group: str, members: Sequence[Member], kinds: Iterable[str]) -> str:
    """Why no optimizer of the group takes work of these kinds, and the remedy; "" when some take each."""
    known = {kind for member in members if member.takes_tasks for kind in member.kinds}
    unknown = ", ".join(sorted(set(kinds) - known))
    if not unknown:
        return ""
    return (
        f"no optimizer of group {group!r} takes work of the kind {unknown}: update one of them, or start one that does "
        f"with amoro optimizer run --group {group}"
    )


def _why(group: str, members: Sequence[Member]) -> str:
    if not members:
        return f"group {group!r} has no optimizer"
    if all(member.is_draining for member in members):
        return f"every optimizer of group {group!r} is draining"
    return f"no optimizer of group {group!r} has reported since the coordinator started"


def _what_next(group: str, container: str, kept: InstancesView) -> str:
    if container == EXTERNAL:
        return f"start one with amoro optimizer run --group {group}"
    failed = f" after {_starts(kept.failed_starts)} in a row ({kept.failure})" if kept.failed_starts else ""
    if kept.has_given_up:
        return f"container {container} has given up{failed}; amoro group scale {group} N makes it try again"
    if kept.wanted == 0:
        return f"container {container} keeps 0 of them; amoro group scale {group} 1 starts one"
    return f"container {container} is starting {kept.wanted}{failed}"


def _starts(count: int) -> str:
    return f"{count} failed start{'' if count == 1 else 's'}"
