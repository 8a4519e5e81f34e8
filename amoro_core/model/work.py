"""The work of a task and its result, as sent: a kind, and the kind's own message."""

from dataclasses import field

from amoro_core.records import record

#: Files rewritten and converted; the one kind that is always known.
REWRITE = "rewrite"
#: Files listed, and those found that nobody needs; condemned files deleted; values of columns counted.
LIST, DELETE, SKETCH = "list", "delete", "sketch"


@record
class Work:
    """The work of a task; `payload` is the protobuf message of its kind."""

    kind: str
    payload: bytes = field(repr=False)


@record
class WorkResult:
    """The result of work; `payload` is the result message of its kind."""

    kind: str
    payload: bytes = field(repr=False)
