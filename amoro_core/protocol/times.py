"""Moments in messages: microseconds since 1970, UTC."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(moment: datetime) -> int:
    """The moment in microseconds, whole."""
    return (moment - _EPOCH) // _MICROSECOND


def from_us(microseconds: int) -> datetime:
    """The moment of so many microseconds."""
    return _EPOCH + microseconds * _MICROSECOND


def milliseconds(time: timedelta) -> int:
    """How many whole milliseconds it is."""
    return time // timedelta(milliseconds=1)
