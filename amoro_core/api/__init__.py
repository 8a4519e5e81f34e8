"""The Python API: `from amoro_core import plan, optimize, verify, connect`.

Failures are raised as errors of `amoro_core.errors`, whose classes mirror the exit statuses of the command line:
WorkFailed (1), InvalidArgument and InvalidSettings (2), NotFound (3), NotAllowed (4), Conflict (5), TableRefused (6),
CommitUnknown (7), WaitTimeout (124).
"""

from amoro_core.api.client import Client, connect
from amoro_core.api.pyiceberg_tables import optimize, plan, verify
from amoro_core.api.results import (
    Catalog,
    ChosenColumn,
    ChosenColumns,
    ComparedPartition,
    Comparison,
    FileSummary,
    Learned,
    LearnedColumn,
    Maintenance,
    Optimizer,
    Optimizing,
    Plan,
    PlannedPartition,
    Process,
    Receipt,
    Suggested,
    SuggestedColumn,
    Table,
    Task,
    Verification,
)
from amoro_core.model.clustering import EncodedFiles
from amoro_core.model.processes import Figure

__all__ = [
    "Catalog",
    "ChosenColumn",
    "ChosenColumns",
    "Client",
    "ComparedPartition",
    "Comparison",
    "EncodedFiles",
    "Figure",
    "FileSummary",
    "Learned",
    "LearnedColumn",
    "Maintenance",
    "Optimizer",
    "Optimizing",
    "Plan",
    "PlannedPartition",
    "Process",
    "Receipt",
    "Suggested",
    "SuggestedColumn",
    "Table",
    "Task",
    "Verification",
    "connect",
    "optimize",
    "plan",
    "verify",
]
