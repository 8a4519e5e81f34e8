"""All actions by the types of their processes: our own, and those of installed packages."""

from collections.abc import Iterable

from amoro_core.actions.action_api import Action, Optimizing
from amoro_core.actions.clustering import Cluster
from amoro_core.actions.file_removal import CleanDanglingDeletes, ExpireData
from amoro_core.actions.manifests import RewriteManifests
from amoro_core.actions.orphans import CleanOrphanFiles, EmptyTrash
from amoro_core.actions.rewriting import Rewriting
from amoro_core.actions.snapshots import AutoCreateTags, ExpireSnapshots
from amoro_core.actions.statistics import ComputeStatistics
from amoro_core.actions.table_services import HudiClean, HudiCluster, HudiCompact, PaimonCompact, PaimonExpire
from amoro_core.actions.undoing import undo_actions
from amoro_core.errors import IllegalState

#: An entry point of this group names an action: a function without arguments that makes one.
GROUP = "amoro.actions"


class Actions:
    """Every action, found by the type of a process."""

    def __init__(self, more: Iterable[Action] = ()) -> None:
        """`more` are added to our own. Raises ValueError for a duplicate name."""
        self.optimizing: Optimizing = Rewriting()
        self._by_own_name: dict[str, Action] = {}
        self._by_type: dict[str, Action] = {}
        for action in (self.optimizing, *_maintenance(), *more):
            if action.name in self._by_own_name:
                raise ValueError(f"two actions have the name {action.name!r}")
            self._by_own_name[action.name] = action
            for name in action.names:
                if name in self._by_type:
                    raise ValueError(f"two actions have processes of the name {name!r}")
                self._by_type[name] = action

    @property
    def every(self) -> tuple[Action, ...]:
        """Each action once, our own first."""
        return tuple(self._by_own_name.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The types of all processes."""
        return tuple(self._by_type)

    def of(self, name: str) -> Action:
        """The action of a process type, or of its own name. Raises IllegalState if it is not installed (any more)."""
        action = self._by_type.get(name) or self._by_own_name.get(name)
        if action is None:
            raise IllegalState(
                f"the action {name!r} is not known",
                hint="Install the package that plugs it in where the coordinator runs; its processes wait until then.",
            )
        return action


def _maintenance() -> tuple[Action, ...]:
    return (
        AutoCreateTags(),
        ExpireData(),
        CleanDanglingDeletes(),
        RewriteManifests(),
        ExpireSnapshots(),
        ComputeStatistics(),
        CleanOrphanFiles(),
        EmptyTrash(),
        Cluster(),
        HudiCompact(),
        HudiCluster(),
        HudiClean(),
        PaimonCompact(),
        PaimonExpire(),
        *undo_actions(),
    )
