"""Initial defaults: the values of columns that were added with one, in files that were written before."""

from typing import Any

import pyarrow as pa
from pyiceberg.conversions import from_json, to_bytes
from pyiceberg.types import NestedField, PrimitiveType

from amoro_core.files.partitions import values_array


def default_array(field: NestedField) -> pa.Array | None:
    """The field's initial default as an array of one value of its Arrow type; None without one."""
    kind, value = field.field_type, field.initial_default
    if value is None or not isinstance(kind, PrimitiveType):
        return None
    return values_array(kind, [to_bytes(kind, value)])


def unusable_default(kind: PrimitiveType, value: Any) -> str | None:
    """Why a default, as JSON has it, is no value of the type that can be read here; None when it is one."""
    try:
        values_array(kind, [to_bytes(kind, from_json(kind, value))])
    except Exception as error:  # whatever a value of a wrong type or range makes of the conversions
        return f"{type(error).__name__}: {error}"
    return None
