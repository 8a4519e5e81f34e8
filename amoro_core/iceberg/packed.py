"""Reading manifest entries with packed metrics: most of a manifest is metrics, of which few are needed."""

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import BinaryReader, IntegerReader, MapReader, OptionReader, Reader, StructReader
from pyiceberg.manifest import DataFile as EntryFile

from amoro_core.iceberg.bounded import BoundedDecoder
from amoro_core.live.packing import PackedMap, read_bytes, read_number


class PackedReader(Reader):
    """Reads a map of numbers or bytes by field id without decoding it."""

    def __init__(self, plain: MapReader, *, is_optional: bool) -> None:
        self._plain = plain
        self.is_optional = is_optional
        self.of_numbers = isinstance(plain.value, IntegerReader)

    def read(self, decoder: BinaryDecoder) -> PackedMap | None:
        """The map in its encoded form; None if absent. Raises ValueError, and TypeError for another decoder."""
        if not isinstance(decoder, BoundedDecoder):
            raise TypeError("metrics are packed as the bounded decoder finds them")
        if self.is_optional and decoder.read_int() <= 0:
            return None
        return PackedMap(decoder.read_map(of_numbers=self.of_numbers), read_number if self.of_numbers else read_bytes)

    def skip(self, decoder: BinaryDecoder) -> None:
        """As `read`."""
        self.read(decoder)

    @property
    def required(self) -> "PackedReader":
        """The same reader for a map that is not optional."""
        return PackedReader(self._plain, is_optional=False)


def with_packed_metrics(reader: Reader) -> Reader:
    """The reader of manifest entries, changed to leave the maps of their files packed."""
    if not isinstance(reader, StructReader):
        return reader
    pack = _packed if reader.create_struct is EntryFile else with_packed_metrics
    fields = tuple((at, pack(one)) for at, one in reader.field_readers)
    return StructReader(fields, reader.create_struct, reader.struct)


def _packed(reader: Reader) -> Reader:
    plain = reader.option if isinstance(reader, OptionReader) else reader
    if not isinstance(plain, MapReader) or not isinstance(plain.key, IntegerReader):
        return reader
    if not isinstance(plain.value, IntegerReader | BinaryReader):
        return reader
    return PackedReader(plain, is_optional=plain is not reader)
