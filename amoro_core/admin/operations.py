"""The functions of the operations, by the names of their methods."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from amoro_core.admin import (
    access,
    catalogs,
    clustering,
    groups,
    history,
    maintenance,
    optimizing,
    processes,
    status,
    tables,
)
from amoro_core.admin.context import Call, Services
from amoro_core.protocol.operations import OPERATIONS

Function = Callable[[Services, Any, Call], Any]

_MODULES = (access, catalogs, clustering, groups, history, maintenance, optimizing, processes, status, tables)


def _function(method: str) -> Function:
    """The function of the method: GetTable is done by `get_table`. Raises LookupError without one."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower()
    (found,) = (vars(module)[name] for module in _MODULES if name in vars(module))
    function: Function = found
    return function


FUNCTIONS: Mapping[str, Function] = {method: _function(method) for method in OPERATIONS}
#: For requests with `wait_ms`: whether this answer, after the one before, ends the wait.
IS_NEWS: Mapping[str, Callable[[Any, Any], bool]] = {"GetProcess": processes.has_moved}
#: The answer at the deadline, where that is no error.
LATE: Mapping[str, Callable[[Any], Any]] = {"CheckCatalog": catalogs.late_check}
