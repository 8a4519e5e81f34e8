"""What every table format offers, and the further roles that a format may have."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from amoro_core.model.tables import TableFacts


class Role(StrEnum):
    """A role: a set of methods that a format may offer."""

    READ = "read"  # `Readable`: snapshots and live files
    REWRITE = "rewrite"  # `Rewritable`: files replaced by others with the same rows
    COMMIT = "commit"  # `Committable`: changes sent, each at most once; what was staged in vain removed
    MAINTAIN = "maintain"  # `Maintainable`: changes that add no snapshot
    SEARCH = "search"  # `Searchable`: files in its locations, and which of them the table references
    EXPIRE = "expire"  # `Expirable`: removing snapshots, and finding the files that only they needed
    SWEEP = "sweep"  # `Sweepable`: deleting files that a guard has released
    ANALYZE = "analyze"  # `Analyzable`: files with statistics of snapshots
    DATE = "date"  # `Dated`: the age of rows
    CLUSTER = "cluster"  # `Clusterable`: rewriting manifests
    SORT = "sort"  # `Sortable`: the orders in which rows may be written


class OpenTable(Protocol):
    """One table as loaded at one moment: what every format offers.

    `head`, `stage`, `trace` and `delete_unreferenced` reload it: they raise TableNotFound when it is gone, and
    CommitConflict when its name belongs to another table by then. Every method may raise CatalogUnavailable,
    DataFileMissing (a metadata file) or StorageFull.
    """

    @property
    def facts(self) -> TableFacts:
        """Facts about the table from loading it."""

    @property
    def roles(self) -> frozenset[Role]:
        """The roles of the table, whose methods it has."""

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        """Raise TableRefused, by name, when the table has an unsupported feature.

        `for_commit`: also for a feature that is only supported for reading, and when its catalog can't commit.
        """

    def left_alone(self) -> str | None:
        """Why a table under write-audit-publish is not optimized now; None when it may be."""

    def io_properties(self) -> Mapping[str, str]:
        """Properties for reading and writing this table's files, to be vended to an executor."""
