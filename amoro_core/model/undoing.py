"""Which processes can be undone, and by which action."""

from collections.abc import Mapping
from types import MappingProxyType

from amoro_core.model.clustering import CLUSTER
from amoro_core.model.tables import OptimizingType

#: For each undo action, the types of the processes that it undoes.
UNDOES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "undo-optimizing": (*(kind.value for kind in OptimizingType), CLUSTER),
        "undo-expire-data": ("expire-data",),
        "undo-expire-snapshots": ("expire-snapshots",),
        "undo-clean-orphan-files": ("clean-orphan-files",),
        "undo-auto-create-tags": ("auto-create-tags",),
        "undo-compute-statistics": ("compute-statistics",),
    }
)
#: All types of processes that can be undone; any other changes no row, or is an undo itself.
UNDOABLE = frozenset(name for names in UNDOES.values() for name in names)
