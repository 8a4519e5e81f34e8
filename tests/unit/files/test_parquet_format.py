"""Encoded structs put together are the bytes of the whole."""

from __future__ import annotations

import pytest

from amoro_core.files.parquet_format import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    RowGroup,
    SchemaElement,
    continued,
    encoded,
    filled,
)


@pytest.mark.parametrize("count", [0, 1, 14, 15, 127, 128, 20_000])
def test_a_list_is_filled_with_encoded_structs(count: int) -> None:
    chunks = [ColumnChunk(file_offset=0, meta_data=ColumnMetaData(num_values=number)) for number in range(count)]
    more = {"num_rows": 7, "ordinal": 3}
    assert filled(encoded(RowGroup(columns=[], **more)), [encoded(one) for one in chunks]) == encoded(
        RowGroup(columns=chunks, **more)
    )


def test_a_struct_is_continued_with_the_fields_of_another() -> None:
    one = {"version": 2, "schema": [SchemaElement(name=b"n")], "num_rows": 300}
    other = {"row_groups": [RowGroup(num_rows=300)], "created_by": b"someone"}
    assert continued(encoded(FileMetaData(**one)), 3, encoded(FileMetaData(**other))) == encoded(
        FileMetaData(**one, **other)
    )
    places = {"column_index_offset": 500, "column_index_length": 20}
    assert continued(encoded(ColumnChunk(file_offset=0)), 2, encoded(ColumnChunk(**places))) == encoded(
        ColumnChunk(file_offset=0, **places)
    )
