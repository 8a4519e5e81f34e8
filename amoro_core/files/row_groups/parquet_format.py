"""Footers, page headers and page indexes of Parquet as values, and their bytes in Thrift's compact protocol.

Field numbers and types are those of the Parquet format's specification (parquet.thrift, 2.12). Strings stay bytes; a
field that is not set is None. What these tables do not know is lost: `is_complete` says whether a value is the whole.
"""

from collections.abc import Callable
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TType

#: The marks at the beginning and end of a file, and of one whose footer is encrypted.
MAGIC, MAGIC_ENCRYPTED = b"PAR1", b"PARE"

_BOOL, _I8, _I16, _I32, _I64, _DOUBLE = (
    (kind, None) for kind in (TType.BOOL, TType.BYTE, TType.I16, TType.I32, TType.I64, TType.DOUBLE)
)
_BYTES = (TType.STRING, "BINARY")
#: A list of truths is one of `true` or of `false` there: most writers say the first, arrow-rs says the other.
_TRUE, _FALSE = 1, 2

_Kind = tuple[int, Any]


class Struct(SimpleNamespace):
    """A Thrift struct or union; fields are attributes."""

    thrift_spec: ClassVar[tuple[Any, ...]] = ()
    kind: ClassVar[list[Any]]  # the class and its fields, as the codec wants them

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


S = TypeVar("S", bound=Struct)


def _struct(name: str, /, **fields: tuple[int, _Kind]) -> type[Struct]:
    """A class of that name; each field has its number and its type."""
    spec: list[Any] = [None] * (1 + max((number for number, _ in fields.values()), default=-1))
    for field, (number, (kind, more)) in fields.items():
        spec[number] = (number, kind, field, more, None)
    output: type[Struct] = type(name, (Struct,), {"thrift_spec": tuple(spec), **dict.fromkeys(fields)})
    output.kind = [output, output.thrift_spec]
    return output


def _of(kind: type[Struct]) -> _Kind:
    return TType.STRUCT, kind.kind


def _list(element: _Kind) -> _Kind:
    return TType.LIST, (*element, False)


_EMPTY = _of(_struct("Empty"))
_TimeUnit = _struct("TimeUnit", millis=(1, _EMPTY), micros=(2, _EMPTY), nanos=(3, _EMPTY))
_Moment = _struct("Moment", is_adjusted_to_utc=(1, _BOOL), unit=(2, _of(_TimeUnit)))
_LogicalType = _struct(
    "LogicalType",
    string=(1, _EMPTY),
    map=(2, _EMPTY),
    list=(3, _EMPTY),
    enum=(4, _EMPTY),
    decimal=(5, _of(_struct("Decimal", scale=(1, _I32), precision=(2, _I32)))),
    date=(6, _EMPTY),
    time=(7, _of(_Moment)),
    timestamp=(8, _of(_Moment)),
    integer=(10, _of(_struct("Integer", bit_width=(1, _I8), is_signed=(2, _BOOL)))),
    unknown=(11, _EMPTY),
    json=(12, _EMPTY),
    bson=(13, _EMPTY),
    uuid=(14, _EMPTY),
    float16=(15, _EMPTY),
    variant=(16, _of(_struct("Variant", specification_version=(1, _I8)))),
    geometry=(17, _of(_struct("Geometry", crs=(1, _BYTES)))),
    geography=(18, _of(_struct("Geography", crs=(1, _BYTES), algorithm=(2, _I32)))),
)
SchemaElement = _struct(
    "SchemaElement",
    type=(1, _I32),
    type_length=(2, _I32),
    repetition_type=(3, _I32),
    name=(4, _BYTES),
    num_children=(5, _I32),
    converted_type=(6, _I32),
    scale=(7, _I32),
    precision=(8, _I32),
    field_id=(9, _I32),
    logical_type=(10, _of(_LogicalType)),
)
Statistics = _struct(
    "Statistics",
    max=(1, _BYTES),
    min=(2, _BYTES),
    null_count=(3, _I64),
    distinct_count=(4, _I64),
    max_value=(5, _BYTES),
    min_value=(6, _BYTES),
    is_max_value_exact=(7, _BOOL),
    is_min_value_exact=(8, _BOOL),
    nan_count=(9, _I64),
)
_SizeStatistics = _struct(
    "SizeStatistics",
    unencoded_byte_array_data_bytes=(1, _I64),
    repetition_level_histogram=(2, _list(_I64)),
    definition_level_histogram=(3, _list(_I64)),
)
_KeyValue = _struct("KeyValue", key=(1, _BYTES), value=(2, _BYTES))
_EncodingStats = _struct("PageEncodingStats", page_type=(1, _I32), encoding=(2, _I32), count=(3, _I32))
ColumnMetaData = _struct(
    "ColumnMetaData",
    type=(1, _I32),
    encodings=(2, _list(_I32)),
    path_in_schema=(3, _list(_BYTES)),
    codec=(4, _I32),
    num_values=(5, _I64),
    total_uncompressed_size=(6, _I64),
    total_compressed_size=(7, _I64),
    key_value_metadata=(8, _list(_of(_KeyValue))),
    data_page_offset=(9, _I64),
    index_page_offset=(10, _I64),
    dictionary_page_offset=(11, _I64),
    statistics=(12, _of(Statistics)),
    encoding_stats=(13, _list(_of(_EncodingStats))),
    bloom_filter_offset=(14, _I64),
    bloom_filter_length=(15, _I32),
    size_statistics=(16, _of(_SizeStatistics)),
)
#: Without encryption: a chunk that has it is not known.
ColumnChunk = _struct(
    "ColumnChunk",
    file_path=(1, _BYTES),
    file_offset=(2, _I64),
    meta_data=(3, _of(ColumnMetaData)),
    offset_index_offset=(4, _I64),
    offset_index_length=(5, _I32),
    column_index_offset=(6, _I64),
    column_index_length=(7, _I32),
)
_SortingColumn = _struct("SortingColumn", column_idx=(1, _I32), descending=(2, _BOOL), nulls_first=(3, _BOOL))
RowGroup = _struct(
    "RowGroup",
    columns=(1, _list(_of(ColumnChunk))),
    total_byte_size=(2, _I64),
    num_rows=(3, _I64),
    sorting_columns=(4, _list(_of(_SortingColumn))),
    file_offset=(5, _I64),
    total_compressed_size=(6, _I64),
    ordinal=(7, _I16),
)
_ColumnOrder = _struct("ColumnOrder", type_order=(1, _EMPTY), ieee754=(2, _EMPTY), int96=(3, _EMPTY))
#: Without encryption: a footer that has it is not known.
FileMetaData = _struct(
    "FileMetaData",
    version=(1, _I32),
    schema=(2, _list(_of(SchemaElement))),
    num_rows=(3, _I64),
    row_groups=(4, _list(_of(RowGroup))),
    key_value_metadata=(5, _list(_of(_KeyValue))),
    created_by=(6, _BYTES),
    column_orders=(7, _list(_of(_ColumnOrder))),
)

_PageLocation = _struct("PageLocation", offset=(1, _I64), compressed_page_size=(2, _I32), first_row_index=(3, _I64))
OffsetIndex = _struct(
    "OffsetIndex", page_locations=(1, _list(_of(_PageLocation))), unencoded_byte_array_data_bytes=(2, _list(_I64))
)
ColumnIndex = _struct(
    "ColumnIndex",
    null_pages=(1, _list(_BOOL)),
    min_values=(2, _list(_BYTES)),
    max_values=(3, _list(_BYTES)),
    boundary_order=(4, _I32),
    null_counts=(5, _list(_I64)),
    repetition_level_histograms=(6, _list(_I64)),
    definition_level_histograms=(7, _list(_I64)),
    nan_counts=(8, _list(_I64)),
)
#: Of a bloom filter's header its size alone.
BloomFilterHeader = _struct("BloomFilterHeader", num_bytes=(1, _I32))
_DataPage = _struct(
    "DataPageHeader",
    num_values=(1, _I32),
    encoding=(2, _I32),
    definition_level_encoding=(3, _I32),
    repetition_level_encoding=(4, _I32),
    statistics=(5, _of(Statistics)),
)
_DictionaryPage = _struct("DictionaryPageHeader", num_values=(1, _I32), encoding=(2, _I32), is_sorted=(3, _BOOL))
_DataPageV2 = _struct(
    "DataPageHeaderV2",
    num_values=(1, _I32),
    num_nulls=(2, _I32),
    num_rows=(3, _I32),
    encoding=(4, _I32),
    definition_levels_byte_length=(5, _I32),
    repetition_levels_byte_length=(6, _I32),
    is_compressed=(7, _BOOL),
    statistics=(8, _of(Statistics)),
)
PageHeader = _struct(
    "PageHeader",
    type=(1, _I32),
    uncompressed_page_size=(2, _I32),
    compressed_page_size=(3, _I32),
    crc=(4, _I32),
    data_page_header=(5, _of(_DataPage)),
    dictionary_page_header=(7, _of(_DictionaryPage)),
    data_page_header_v2=(8, _of(_DataPageV2)),
)


class _Memory:
    """Bytes as Thrift's decoder wants them; there are never more."""

    def __init__(self, content: bytes) -> None:
        self.cstringio_buf = BytesIO(content)

    def cstringio_refill(self, partial: bytes, wanted: int) -> BytesIO:
        raise EOFError


def _codec() -> tuple[Callable[[Struct, list[Any]], bytes], str]:
    """Thrift's encoder in C, which needs no transport, and why there is none: a wheel has it, other builds may not."""
    try:
        return TCompactProtocolAccelerated(None, fallback=False)._fast_encode, ""
    except (ImportError, AttributeError):
        return _no_encoder, "the package thrift is installed without its C extension"


def _no_encoder(value: Struct, kind: list[Any]) -> bytes:
    raise RuntimeError(MISSING_CODEC)


_encode, MISSING_CODEC = _codec()


class Bytes:
    """Bytes from which structs are read, wherever they begin."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        memory = _Memory(content)
        # A damaged length must not make room for billions of elements.
        most = {"string_length_limit": len(content), "container_length_limit": len(content)}
        self._protocol = TCompactProtocolAccelerated(memory, fallback=False, **most)
        self._decode: Any = self._protocol._fast_decode
        self._stream = memory.cstringio_buf

    def read(self, kind: type[S], at: int) -> tuple[S, int]:
        """The struct that begins there, and where it ends. Raises ValueError for what is none."""
        return self._read(kind, at), self._stream.tell()

    def is_complete(self, value: Struct, at: int, end: int) -> bool:
        """Whether the struct that was read there holds all that the bytes do."""
        return self._content[at:end] == _encode(value, value.kind)

    def decode(self, kind: type[S], at: int, length: int) -> tuple[S, bytes] | None:
        """The struct that these bytes are, and they themselves; None where it is not all of them. Raises ValueError."""
        result = self._read(kind, at)
        text = self._content[at : at + length]
        return (result, text) if _encode(result, kind.kind) in (text, _with_our_truths(text, kind)) else None

    def _read(self, kind: type[S], at: int) -> S:
        self._stream.seek(at)
        try:
            result: S = self._decode(None, self._protocol, kind.kind)
        except (TProtocolException, EOFError, OverflowError, MemoryError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"no {kind.__name__} at {at}: {error}") from error
        return result


def _with_our_truths(text: bytes, kind: type[Struct]) -> bytes:
    """The bytes of a column index, whose first field is a list of truths, as they would be written here."""
    if kind is not ColumnIndex or len(text) < 2 or text[1] & 0x0F != _FALSE:
        return text
    return text[:1] + bytes([text[1] - _FALSE + _TRUE]) + text[2:]


def encoded(value: Struct) -> bytes:
    """The struct's bytes."""
    return _encode(value, value.kind)
