"""What maintenance beside tags needs of a format, a role each.

Where a format lacks one, its tables are refused for what needs it, and for that only.
"""

from typing import Protocol

from amoro_core.formats.opening import OpenTable


class Upkept(OpenTable, Protocol):
    """A table with every role of maintenance."""
