"""Table properties of the removal of dangling delete files."""

from amoro_core.model.properties import boolean, declared
from amoro_core.records import record

#: The property that switches it on and off.
SWITCH = "clean-dangling-delete-files.enabled"


@record
class DanglingConfig:
    """The properties of a table for the removal of dangling delete files."""

    enabled: bool = declared(SWITCH, "true", boolean)
