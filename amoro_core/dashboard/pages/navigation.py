"""The navigation: which pages there are, and for which role."""

from amoro_core.model.tokens import Role
from amoro_core.records import record


@record
class Entry:
    """A page that the navigation leads to, for this role and those above it."""

    path: str
    label: str
    role: Role = Role.VIEWER


ENTRIES = (
    Entry("/", "Overview"),
    Entry("/catalogs", "Catalogs"),
    Entry("/tables", "Tables"),
    Entry("/processes", "Processes"),
    Entry("/groups", "Groups"),
    Entry("/optimizers", "Optimizers"),
    Entry("/queue", "Queue"),
    Entry("/maintenance", "Maintenance"),
    Entry("/trash", "Trash"),
    Entry("/events", "Events"),
    Entry("/audit", "Audit"),
    Entry("/users", "Users", Role.ADMIN),
    Entry("/settings", "Settings", Role.ADMIN),
    Entry("/system", "System"),
)
