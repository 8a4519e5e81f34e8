"""How files of Amoro's Mixed format are named: NODE-TYPE-TX-PPPPP-TASK-OPERATION, where TYPE is that of the rows."""

import re

#: The name, for Arrow as for Python.
NAME = r"\.?[0-9]+-(B|I|ED|PD|IED|L)-[0-9]+-[0-9]+-[0-9]+-[^/\n]*"
_NAME = re.compile(NAME)


def is_mixed(path: str) -> bool:
    """Whether the file at the path is named as one of Amoro's Mixed format."""
    return _NAME.fullmatch(path.rpartition("/")[2]) is not None
