"""Single values that were written before their column was promoted, in the form of the column's present type."""

import struct
from collections.abc import Mapping

from pyiceberg.types import DoubleType, IcebergType, LongType, TimestampNanoType, TimestampType

#: Of a timestamp's units, those in a day.
_A_DAY: Mapping[type[IcebergType], int] = {TimestampType: 86_400_000_000, TimestampNanoType: 86_400_000_000_000}
_INT, _LONG, _FLOAT, _DOUBLE = (struct.Struct(code) for code in ("<i", "<q", "<f", "<d"))


def promoted(kind: IcebergType, value: bytes) -> bytes | None:
    """A value in binary form, of the type `kind` or of the one that the column had before, as a value of `kind`.

    Four bytes are an int of a long, a float of a double, a date of a timestamp. None: the present type has no such
    value, so no row has it either.
    """
    if len(value) != 4:
        return value
    if isinstance(kind, LongType):
        return _LONG.pack(*_INT.unpack(value))
    if isinstance(kind, DoubleType):
        return _DOUBLE.pack(*_FLOAT.unpack(value))
    units = _A_DAY.get(type(kind))
    if units is None:
        return value
    moment = _INT.unpack(value)[0] * units
    return _LONG.pack(moment) if -(2**63) <= moment < 2**63 else None
