"""Who may do what: the role and the table of an operation against the account that calls.

A pattern limits actions on tables, never sight: operations that only read name no table here.
"""

from collections.abc import Callable
from typing import Any

from amoro_core.admin.services import Services
from amoro_core.errors import NotAllowed
from amoro_core.model.principals import Principal
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.tokens import Role

#: The table that a request acts on. Raises what the operation itself would raise for a wrong name or id.
Acted = Callable[[Services, Any], TableIdentifier]


def by_table(services: Services, request: Any) -> TableIdentifier:
    """The table named by `table`."""
    return services.catalogs.resolve(request.table)


def by_process(services: Services, request: Any) -> TableIdentifier:
    """The table of the process `process_id`."""
    return services.overview.process(request.process_id, services.optimizers.progress()).table


def by_blocker(services: Services, request: Any) -> TableIdentifier:
    """The table of the blocker `blocker_id`."""
    return services.blockers.find(request.blocker_id).table


def by_lease(services: Services, request: Any) -> TableIdentifier:
    """The table of the lease `lease_id`."""
    return services.leasing.find(request.lease_id).table


def require(principal: Principal, method: str, needed: Role, acted: Callable[[], TableIdentifier] | None) -> None:
    """Raise NotAllowed unless the account may call the method; `acted` gives the table, which is asked if it matters.

    The error names the role that would do.
    """
    if not principal.role.allows(needed):
        raise NotAllowed(
            f"{principal.title} has the role {principal.role}; {method} needs the role {needed}",
            hint=f"Give a token with the role {needed}: amoro token create NAME --role {needed}",
        )
    if acted is not None and principal.pattern and not principal.may_act_on(table := acted()):
        raise NotAllowed(
            f"{principal.title} acts on {principal.pattern} alone; {method} on {table} needs the role {Role.OPERATOR} "
            f"for that table, or {Role.ADMIN}",
            hint="Ask an administrator for another pattern: amoro token create NAME --role operator --on PATTERN",
        )
