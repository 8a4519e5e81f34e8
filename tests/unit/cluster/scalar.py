"""Iceberg's order of values one by one, written after the specification: what columns are compared with."""

from __future__ import annotations

import struct
import uuid
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from pyiceberg.transforms import parse_transform
from pyiceberg.types import DoubleType, FloatType, IcebergType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from amoro_core.model.clustering import LayoutKey


def comparable(kind: IcebergType, value: Any) -> Any:
    """A Python value that compares as Iceberg compares the value, which is not null."""
    match value:
        case bool() | int():
            return int(value)
        case float():
            return _float(value, isinstance(kind, FloatType))
        case Decimal():
            return value
        case uuid.UUID():
            return value.bytes
        case str():
            return value.encode()
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case time():
            return time_to_micros(value)
        case _:
            return bytes(value)


def _float(value: float, is_single: bool) -> int:
    """The place in IEEE's total order: −NaN < −∞ < … < −0 < 0 < … < NaN."""
    width = 32 if is_single else 64
    (bits,) = struct.unpack(">I" if is_single else ">Q", struct.pack(">f" if is_single else ">d", value))
    sign = 1 << (width - 1)
    return -(bits - sign) - 1 if bits & sign else bits


def stored(value: Any) -> Any:
    """The value in the form that pyiceberg's transforms take."""
    if isinstance(value, datetime | date | time):
        return comparable(DoubleType(), value)
    return value


def transformed(kind: IcebergType, key: LayoutKey, value: Any) -> Any:
    """What pyiceberg's transform makes of a value, as it compares."""
    if key.transform == "identity":
        return comparable(kind, value)
    made = parse_transform(key.transform).transform(kind)(stored(value))
    return made.encode() if isinstance(made, str) else made


def compared(key: LayoutKey, one: Any, other: Any) -> int:
    """−1, 0 or 1 for transformed values: nulls where the key says, whatever the direction."""
    if one is None or other is None:
        if one is None and other is None:
            return 0
        return -1 if (one is None) != key.nulls_last else 1
    sign = (one > other) - (one < other)
    return -sign if key.descending else sign
