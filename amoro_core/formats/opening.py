"""What every table format offers, and the roles that a format may have beside."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from amoro_core.model.tables import TableFacts


class Role(StrEnum):
    """What a format can do for whoever works on its tables."""

    READ = "read"  # `Readable`: snapshots and live files
    REWRITE = "rewrite"  # `Rewritable`: files replaced by others with the same rows
    COMMIT = "commit"  # `Committable`: changes sent, each at most once; what was staged in vain removed
    MAINTAIN = "maintain"  # `Maintainable`: changes that add no snapshot
    SEARCH = "search"  # `Searchable`: whatever lies where its files lie, and what of it the table names
    EXPIRE = "expire"  # `Expirable`: snapshots removed, and what they alone needed
    SWEEP = "sweep"  # `Sweepable`: files deleted that a guard lets go
    ANALYZE = "analyze"  # `Analyzable`: files with statistics of snapshots
    DATE = "date"  # `Dated`: how old rows are
    CLUSTER = "cluster"  # `Clusterable`: manifests written anew


class OpenTable(Protocol):
    """One table as loaded at one moment: what every format offers.

    `head`, `stage`, `trace` and `delete_unreferenced` load it anew: these raise TableNotFound when it is gone, and
    CommitConflict when its name is another table's by then. Every method may raise CatalogUnavailable, DataFileMissing
    (a metadata file) or StorageFull.
    """

    @property
    def facts(self) -> TableFacts:
        """What loading the table said."""

    @property
    def roles(self) -> frozenset[Role]:
        """The roles that the table has; it has the methods of these."""

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        """Raise TableRefused, by name, when the table has a feature that is not handled.

        `for_commit`: or one that only those may pass by who look, or when its catalog takes no commits.
        """

    def left_alone(self) -> str | None:
        """Why a table under write-audit-publish is not optimized now; None when it may be."""

    def io_properties(self) -> Mapping[str, str]:
        """Properties for reading and writing this table's files, to be vended to an executor."""
