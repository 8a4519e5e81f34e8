"""Table properties of the removal of dangling delete files."""

from dataclasses import dataclass

from amoro_core.model.properties import boolean, declared

#: The property that switches it on and off.
SWITCH = "clean-dangling-delete-files.enabled"


@dataclass(frozen=True, slots=True)
class DanglingConfig:
    """The properties of a table for the removal of dangling delete files."""

    enabled: bool = declared(SWITCH, "true", boolean)
