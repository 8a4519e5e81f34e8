"""The Python API: `from amoro_core import plan, optimize, verify, connect`.

What goes wrong is raised as one of `amoro_core.errors`, whose classes mirror the exit statuses of the command line:
WorkFailed (1), InvalidArgument and InvalidSettings (2), NotFound (3), NotAllowed (4), Conflict (5), TableRefused (6),
CommitUnknown (7), WaitTimeout (124).
"""

from amoro_core.api.client import Client, connect
from amoro_core.api.local import optimize, plan, verify
from amoro_core.api.results import (
    Catalog,
    ComparedPartition,
    Comparison,
    FileSummary,
    Maintenance,
    Optimizer,
    Optimizing,
    Plan,
    PlannedPartition,
    Process,
    Receipt,
    Table,
    Task,
    Verification,
)

__all__ = [
    "Catalog",
    "Client",
    "ComparedPartition",
    "Comparison",
    "FileSummary",
    "Maintenance",
    "Optimizer",
    "Optimizing",
    "Plan",
    "PlannedPartition",
    "Process",
    "Receipt",
    "Table",
    "Task",
    "Verification",
    "connect",
    "optimize",
    "plan",
    "verify",
]
