"""Requests that carry a key, so that repeating one does nothing twice."""

from datetime import datetime

from amoro_core.records import record


@record
class KeptAnswer:
    """What was answered over HTTP; `content` is empty where it held a secret, which is kept nowhere."""

    status: int
    media_type: str
    location: str  # of what was begun; "": nothing
    content: bytes


@record
class KeyedRequest:
    """A request with a key that was begun; `answer` is None until it has ended."""

    key_hash: str  # of the key and of who sent it
    request_hash: str
    begun_at: datetime
    answer: KeptAnswer | None
