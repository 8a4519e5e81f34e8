"""Lanes: what of a table a process changes, and so what it may run beside."""

from types import MappingProxyType

FILES = "files"
METADATA = "metadata"
STORAGE = "storage"
STATISTICS = "statistics"

#: Each lane with what its processes change; the store has a row for each.
LANES = MappingProxyType(
    {
        FILES: "data and delete files, by commits that replace some",
        METADATA: "snapshots and references, by commits that add no file",
        STORAGE: "files that no snapshot names",
        STATISTICS: "statistics of snapshots; reading for them takes hours",
    }
)
