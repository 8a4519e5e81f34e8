"""Which processes can be taken back: by the names of actions, whose undo is another action."""

from collections.abc import Mapping
from types import MappingProxyType

from amoro_core.model.tables import OptimizingType

#: For each action that takes something back the names of the processes that it does so for.
UNDOES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "undo-optimizing": tuple(kind.value for kind in OptimizingType),
        "undo-expire-data": ("expire-data",),
        "undo-expire-snapshots": ("expire-snapshots",),
        "undo-clean-orphan-files": ("clean-orphan-files",),
        "undo-auto-create-tags": ("auto-create-tags",),
        "undo-compute-statistics": ("compute-statistics",),
    }
)
#: Every such process; any other changes no row, or is an undo itself.
UNDOABLE = frozenset(name for names in UNDOES.values() for name in names)
