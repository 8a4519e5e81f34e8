"""Lanes: the part of a table that a process changes, and thus which processes may run concurrently."""

from types import MappingProxyType

FILES = "files"
METADATA = "metadata"
STORAGE = "storage"
STATISTICS = "statistics"
LAYOUT = "layout"

#: Each lane with the part that its processes change; the store has a row for each.
LANES = MappingProxyType(
    {
        FILES: "data and delete files, by commits that replace some",
        METADATA: "snapshots and references, by commits that add no file",
        STORAGE: "files that no snapshot names",
        STATISTICS: "statistics of snapshots; reading for them takes hours",
        LAYOUT: "data files, by commits that order their rows anew; beside `files`, on other files",
    }
)
