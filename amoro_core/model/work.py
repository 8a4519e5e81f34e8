"""The work of a task and its result, as they travel: a kind, and the kind's own message."""

from dataclasses import dataclass, field

#: Files rewritten and converted; the one kind that is always known.
REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class Work:
    """What an optimizer is to do; `payload` is the protobuf message of the kind."""

    kind: str
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class WorkResult:
    """What was done; `payload` is the protobuf message that the kind answers with."""

    kind: str
    payload: bytes = field(repr=False)
