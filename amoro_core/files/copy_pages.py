"""The pages of a column chunk that is to be copied, verified without decoding them.

What can be wrong without a checksum is compared with what footer, index and compression say of it; so a damaged page is
not carried into an output whose other rows are good.
"""

from collections.abc import Sequence

import pyarrow as pa

from amoro_core.files.checksums import crc32
from amoro_core.files.copy_source import Leaf, NotCopied, extent
from amoro_core.files.parquet_format import Bytes, PageHeader, Struct

_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
#: PLAIN and its older name; not every writer names a dictionary's in the footer.
_DICTIONARY_ENCODINGS = (0, 2)
#: Bytes of a value by type: of INT32, INT64, INT96, FLOAT and DOUBLE.
_WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
#: Before each value of a BYTE_ARRAY stands its length.
_BYTE_ARRAY, _LENGTH = 6, 4
#: The encoding of levels; what is said of levels that a column does not have is ignored by readers.
_RLE = 3
#: Codecs by their numbers in the format; Arrow's names of those whose bytes have no mark.
_UNCOMPRESSED, _SNAPPY, _GZIP, _ZSTD = 0, 1, 2, 6
_UNMARKED = {4: "brotli", 7: "lz4_raw"}
#: What a Zstandard frame begins with; at most descriptor, window, dictionary and size follow.
_ZSTD_MARK = b"\x28\xb5\x2f\xfd"
_ZSTD_HEAD = len(_ZSTD_MARK) + 1 + 1 + 4 + 8


def verify_pages(content: Bytes, view: memoryview, leaf: Leaf, meta: Struct, begin: int, index: Struct | None) -> None:  # noqa: C901, PLR0912 - one pass over the bytes
    """Raise NotCopied unless the chunk's pages fill it, have its values, and are as checksums, footer and index say.

    The chunk lies at `begin` in `content`, of which `view` shows the bytes; index and footer count from the file's
    begin, where the chunk lies at `extent`.
    """
    first, length = extent(meta)
    at, end, shift = begin, begin + length, first - begin
    values, nulls, data_pages, encodings = 0, 0, list[tuple[int, int]](), dict[int, int]()
    try:
        while at < end:
            header, body = content.read(PageHeader, at)
            after = body + header.compressed_page_size
            if header.compressed_page_size < 0 or after > end:
                raise NotCopied("a page ends behind its column")
            if not content.is_known(header, at, body):
                raise NotCopied("a page header has fields that are not known here")
            count, encoding = _page(header, leaf, at == begin)
            if encoding not in (_DICTIONARY_ENCODINGS if header.type == _DICTIONARY_PAGE else meta.encodings):
                raise NotCopied("a page has an encoding that the footer does not name")
            page = view[body:after]
            if header.type == _DATA_PAGE_V2:
                _require_levels(header.data_page_header_v2, leaf, page)
            if header.crc is not None and crc32(page) != header.crc & 0xFFFFFFFF:
                raise NotCopied("a page is not as its checksum says")
            if header.type != _DICTIONARY_PAGE:
                data_pages.append((at + shift, after - at))
                values += count
                nulls += header.data_page_header_v2.num_nulls if header.type == _DATA_PAGE_V2 else 0
                encodings[encoding] = encodings.get(encoding, 0) + 1
            # To decompress is dear: where bytes have no mark, the first pages must do.
            if meta.codec not in _UNMARKED or at == begin or len(data_pages) == 1:
                _require_codec(header, page, meta.codec)
            at = after
    except (TypeError, AttributeError, OverflowError) as error:
        raise NotCopied("a page header lacks a required field") from error
    except ValueError as error:
        raise error if isinstance(error, NotCopied) else NotCopied("a page header can't be read") from error
    told = meta.statistics
    if nulls and leaf.definition == 1 and not leaf.repetition and told and told.null_count not in (None, nulls):
        raise NotCopied("its pages have another number of nulls than the footer says")
    if meta.encoding_stats and encodings != _encodings(meta.encoding_stats):
        raise NotCopied("its pages have other encodings than the footer says")
    if values != meta.num_values or not data_pages or data_pages[0][0] != meta.data_page_offset:
        raise NotCopied("its pages are not those that the footer says")
    if index is not None and data_pages != [(one.offset, one.compressed_page_size) for one in index.page_locations]:
        raise NotCopied("its pages are not those that the offset index says")


def _encodings(stats: Sequence[Struct]) -> dict[int, int]:
    """The encodings of the data pages, of both versions: not every writer distinguishes them here."""
    found: dict[int, int] = {}
    for one in stats:
        if one.page_type != _DICTIONARY_PAGE and one.count:
            found[one.encoding] = found.get(one.encoding, 0) + one.count
    return found


def _page(header: Struct, leaf: Leaf, is_first: bool) -> tuple[int, int]:
    """Values and encoding of a page."""
    match header.type:
        case 0:
            one = header.data_page_header
            if (leaf.definition and one.definition_level_encoding != _RLE) or (
                leaf.repetition and one.repetition_level_encoding != _RLE
            ):
                raise NotCopied("a page has levels of an unknown encoding")
        case 3:
            one = header.data_page_header_v2
            sizes = one.definition_levels_byte_length, one.repetition_levels_byte_length
            if min(*sizes, one.num_nulls, one.num_rows) < 0 or sum(sizes) > header.compressed_page_size:
                raise NotCopied("a page has levels behind its end")
        case 2 if is_first:
            one = header.dictionary_page_header
            size, width = header.uncompressed_page_size, _WIDTHS.get(leaf.type)
            if (
                one.num_values * width != size
                if width
                else leaf.type == _BYTE_ARRAY and one.num_values * _LENGTH > size
            ):
                raise NotCopied("a dictionary has another size than its values")
        case _:
            raise NotCopied(f"it has a page of the type {header.type}")
    if one.num_values < 0:
        raise NotCopied("a page has a negative number of values")
    return one.num_values, one.encoding


def _require_levels(header: Struct, leaf: Leaf, page: memoryview) -> None:
    """Raise NotCopied unless the levels of a page of version 2, which are never compressed, end where it says."""
    begin = header.repetition_levels_byte_length
    end = begin + header.definition_levels_byte_length
    for levels, highest in ((page[:begin], leaf.repetition), (page[begin:end], leaf.definition)):
        if _levels(levels, highest.bit_length()) < (header.num_values if highest else 0):
            raise NotCopied("a page has fewer levels than values")


def _levels(runs: memoryview, bits: int) -> int:
    """How many levels the runs hold at most: packed ones come in eights. Raises NotCopied for runs cut short."""
    at = found = 0
    while at < len(runs):
        kind, length = _varint(runs[at:])
        count = kind >> 1
        at += length + (count * bits if kind & 1 else (bits + 7) // 8)
        found += 8 * count if kind & 1 else count
        if kind < 0 or at > len(runs):
            raise NotCopied("a page has levels that end early")
    return found


def _require_codec(header: Struct, page: memoryview, codec: int) -> None:
    """Raise NotCopied unless the page is compressed as the footer says, so far as its first bytes tell."""
    size = header.uncompressed_page_size
    if header.type == _DATA_PAGE_V2:
        two = header.data_page_header_v2
        levels = two.definition_levels_byte_length + two.repetition_levels_byte_length
        is_empty = levels == header.compressed_page_size and two.num_nulls == two.num_values
        if two.is_compressed is False or codec == _UNCOMPRESSED or is_empty:
            codec = _UNCOMPRESSED
        else:
            page, size = page[levels:], size - levels
    if codec == _UNCOMPRESSED:
        good = header.compressed_page_size == header.uncompressed_page_size
    elif codec == _SNAPPY:
        good = _varint(page)[0] == size
    elif codec == _GZIP:
        good = bytes(page[:2]) == b"\x1f\x8b" and int.from_bytes(page[-4:], "little") == size
    elif codec == _ZSTD:
        head = bytes(page[:_ZSTD_HEAD])
        good = head.startswith(_ZSTD_MARK) and len(head) > len(_ZSTD_MARK) and _zstd_size(head) in (None, size)
    else:
        good = codec in _UNMARKED and _decompresses(page, _UNMARKED[codec], size)
    if not good:
        raise NotCopied("a page is not compressed as the footer says")


def _decompresses(page: memoryview, codec: str, size: int) -> bool:
    try:
        return len(pa.Codec(codec).decompress(pa.py_buffer(page), size)) == size
    except (OSError, pa.ArrowException):
        return False


def _zstd_size(head: bytes) -> int | None:
    """The decompressed size in the begin of a Zstandard frame (RFC 8878, 3.1.1.1); None where it has none."""
    descriptor = head[4]
    is_single, kind = bool(descriptor & 0x20), descriptor >> 6
    begin = 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
    length = (1 if is_single else 0, 2, 4, 8)[kind]
    if not length:
        return None
    return int.from_bytes(head[begin : begin + length], "little") + (256 if length == 2 else 0)


def _varint(page: memoryview) -> tuple[int, int]:
    """The number at the begin, and its length in bytes; −1 for none."""
    found = 0
    for place, byte in enumerate(page[:5]):
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return found, place + 1
    return -1, 0
