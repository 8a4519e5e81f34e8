"""Parsed table properties for writing Parquet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pyarrow as pa
from pyiceberg.io.pyarrow import match_metrics_mode

from amoro_core.errors import TableRefused
from amoro_core.model.clustering import BOUND_CHARACTERS
from amoro_core.model.files import FileFormat
from amoro_core.model.optimizing_config import WRITE_FORMAT_KEY
from amoro_core.model.properties import (
    Property,
    boolean,
    declared,
    integer,
    one_of,
    parse_columns,
    parse_into,
    parse_value,
    rate,
    whole,
)

#: The format in which data files are written.
FORMAT_KEY = "write.format.default"
_PREFIX = "write.parquet."
#: Iceberg's names of codecs mapped to Arrow's.
_CODECS = {
    "zstd": "zstd",
    "gzip": "gzip",
    "snappy": "snappy",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "brotli": "brotli",
    "uncompressed": "none",
    "none": "none",
}
_LEVELS = {"zstd": 3}  # the default of Iceberg's Java writers
_WITHOUT_LEVEL = ("snappy", "lz4", "none")


def _level(text: str) -> int | None:
    return None if text.strip() in ("", "null") else integer(text)


def _metrics_mode(text: str) -> str:
    try:
        match_metrics_mode(text)
    except ValueError as error:
        raise ValueError("expected none, counts, full or truncate(n)") from error
    return text


def _metrics_default(text: str) -> str | None:
    return _metrics_mode(text) if text else None


BLOOM_ENABLED = Property(f"{_PREFIX}bloom-filter-enabled.column.*", "false", boolean)
BLOOM_RATE = Property(f"{_PREFIX}bloom-filter-fpp.column.*", "0.01", rate)
METRICS_MODE = Property("write.metadata.metrics.column.*", "", _metrics_mode)
#: How bounds are told where nothing is configured.
INFERRED_MODE = "truncate(16)"
#: Properties that exist for each column.
OF_COLUMNS = (METRICS_MODE, BLOOM_ENABLED, BLOOM_RATE)


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How Parquet files of a table are written."""

    codec: str = declared(f"{_PREFIX}compression-codec", "zstd", one_of(_CODECS))
    #: None: the codec's default, or it has no levels.
    level: int | None = declared(f"{_PREFIX}compression-level", "3", _level)
    row_group_rows: int = declared(f"{_PREFIX}row-group-limit", "1048576", whole(1))
    row_group_bytes: int = declared(f"{_PREFIX}row-group-size-bytes", "134217728", whole(1))
    page_bytes: int = declared(f"{_PREFIX}page-size-bytes", "1048576", whole(1))
    page_rows: int = declared(f"{_PREFIX}page-row-limit", "20000", whole(1))
    dictionary_bytes: int = declared(f"{_PREFIX}dict-size-bytes", "2097152", whole(1))
    metrics_modes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # by column name
    metrics_default: str | None = declared("write.metadata.metrics.default", "", _metrics_default)
    #: The number of leaf columns that get the default mode when none is set.
    metrics_columns: int = declared("write.metadata.metrics.max-inferred-column-defaults", "100", whole(1))
    bloom_filters: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # rate by column name
    #: The maximum for each row group of a column.
    bloom_filter_bytes: int = declared(f"{_PREFIX}bloom-filter-max-bytes", "1048576", whole(1))


def require_parquet(properties: Mapping[str, str]) -> None:
    """Raise TableRefused(reason="format") for a table whose data files must be written in another format.

    Position delete files are Parquet whatever `write.delete.format.default` says: readers go by each file's format.
    """
    wanted = properties.get(FORMAT_KEY, FileFormat.PARQUET)
    if wanted.strip().lower() != FileFormat.PARQUET:
        raise TableRefused(
            f"the table property {FORMAT_KEY} is {wanted!r}, and only Parquet is written",
            reason="format",
            hint=f"Set the table's property {WRITE_FORMAT_KEY} to parquet: its files are then rewritten as Parquet,"
            f" while its writers continue to follow {FORMAT_KEY}.",
        )


def writer_options(properties: Mapping[str, str]) -> WriterOptions:
    """The options in a table's properties. Raises TableRefused(reason="configuration"), naming a malformed one."""
    enabled = parse_columns(properties, BLOOM_ENABLED)
    rates = parse_columns(properties, BLOOM_RATE)
    filters = {name: rates.get(name, 0.01) for name, wanted in enabled.items() if wanted}
    result = parse_into(
        WriterOptions,
        properties,
        metrics_modes=MappingProxyType(parse_columns(properties, METRICS_MODE)),
        bloom_filters=MappingProxyType(filters),
    )
    level = _level_of(result.codec, properties)
    return replace(result, level=_LEVELS.get(result.codec) if level is None else level)


def with_bounds(options: WriterOptions, columns: Iterable[str]) -> WriterOptions:
    """The options with bounds for these columns wherever they stand: of the table's own length, or 64 characters."""
    stored, inferred = {}, f"truncate({BOUND_CHARACTERS})"
    for name in columns:
        mode = options.metrics_modes.get(name) or options.metrics_default or inferred
        stored[name] = inferred if mode.strip().lower() in ("none", "counts") else mode
    return replace(options, metrics_modes=MappingProxyType({**options.metrics_modes, **stored}))


def _level_of(codec: str, properties: Mapping[str, str]) -> int | None:
    """The codec's configured level, or None. Raises for one outside the codec's range."""
    key = f"{_PREFIX}compression-level"
    if codec in _WITHOUT_LEVEL:
        return None
    lowest, highest = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)

    def of_codec(text: str) -> int | None:
        level = _level(text)
        if level is not None and not lowest <= level <= highest:
            raise ValueError(f"expected a level of {codec}, {lowest} to {highest}")
        return level

    return parse_value(key, properties.get(key, ""), of_codec)
