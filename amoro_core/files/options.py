"""A table's properties for writing Parquet, parsed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa
from pyiceberg.io.pyarrow import match_metrics_mode

from amoro_core.errors import TableRefused
from amoro_core.model.files import FileFormat

#: In which format data files are written.
_FORMAT = "write.format.default"
_PREFIX = "write.parquet."
_BLOOM_COLUMN = _PREFIX + "bloom-filter-enabled.column."
_BLOOM_RATE = _PREFIX + "bloom-filter-fpp.column."
_BLOOM_BYTES = _PREFIX + "bloom-filter-max-bytes"
_METRICS_DEFAULT = "write.metadata.metrics.default"
_METRICS_COLUMN = "write.metadata.metrics.column."
_METRICS_LIMIT = "write.metadata.metrics.max-inferred-column-defaults"
#: Iceberg's names for codecs to Arrow's.
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
_LEVELS = {"zstd": 3}  # what Iceberg's Java writers use where nothing is said
_WITHOUT_LEVEL = ("snappy", "lz4", "none")


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How Parquet files of a table are written."""

    codec: str = "zstd"
    level: int | None = 3
    row_group_rows: int = 1_048_576
    row_group_bytes: int = 128 << 20
    page_bytes: int = 1 << 20
    page_rows: int = 20_000
    dictionary_bytes: int = 2 << 20
    metrics_modes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # by column name
    metrics_default: str | None = None
    metrics_columns: int = 100  # leaf columns that get the default when none is set
    bloom_filters: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # rate by column name
    bloom_filter_bytes: int = 1 << 20  # at most, for each row group of a column


def require_parquet(properties: Mapping[str, str]) -> None:
    """Raise TableRefused(reason="format") for a table whose data files are to be written in another format.

    Position delete files are written as Parquet whatever `write.delete.format.default` says: readers take each file
    by its own format.
    """
    wanted = properties.get(_FORMAT, FileFormat.PARQUET)
    if wanted.strip().lower() != FileFormat.PARQUET:
        raise TableRefused(
            f"the table property {_FORMAT} is {wanted!r}, and only Parquet is written",
            reason="format",
            hint=f"set {_FORMAT} to parquet, and its files are rewritten as such",
        )


def writer_options(properties: Mapping[str, str]) -> WriterOptions:
    """The options in a table's properties.

    Raises TableRefused(reason="configuration") with key and value of a malformed one.
    """
    codec, level = _compression(properties)
    modes = {
        key.removeprefix(_METRICS_COLUMN): _metrics_mode(properties, key)
        for key in properties
        if key.startswith(_METRICS_COLUMN)
    }
    return WriterOptions(
        codec=codec,
        level=level,
        row_group_rows=_positive(properties, _PREFIX + "row-group-limit", 1_048_576),
        row_group_bytes=_positive(properties, _PREFIX + "row-group-size-bytes", 128 << 20),
        page_bytes=_positive(properties, _PREFIX + "page-size-bytes", 1 << 20),
        page_rows=_positive(properties, _PREFIX + "page-row-limit", 20_000),
        dictionary_bytes=_positive(properties, _PREFIX + "dict-size-bytes", 2 << 20),
        bloom_filters=MappingProxyType(_bloom_filters(properties)),
        bloom_filter_bytes=_positive(properties, _BLOOM_BYTES, 1 << 20),
        metrics_modes=MappingProxyType(modes),
        metrics_default=_metrics_mode(properties, _METRICS_DEFAULT) if _METRICS_DEFAULT in properties else None,
        metrics_columns=_positive(properties, _METRICS_LIMIT, 100),
    )


def _refused(key: str, value: str, wanted: str) -> TableRefused:
    return TableRefused(
        f"the table property {key} is {value!r}, not {wanted}",
        reason="configuration",
        hint=f"set {key} to {wanted} or remove it",
    )


def _positive(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError as error:
        raise _refused(key, text, "a whole number") from error
    if number <= 0:
        raise _refused(key, text, "a number above 0")
    return number


def _bloom_filters(properties: Mapping[str, str]) -> dict[str, float]:
    """The false-positive rate by name of each column that is to have bloom filters."""
    found = {}
    for key, text in properties.items():
        if key.startswith(_BLOOM_COLUMN) and _true(key, text):
            name = key.removeprefix(_BLOOM_COLUMN)
            found[name] = _rate(properties, _BLOOM_RATE + name)
    return found


def _true(key: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise _refused(key, text, "true or false")
    return word == "true"


def _rate(properties: Mapping[str, str], key: str) -> float:
    text = properties.get(key, "0.01")
    try:
        rate = float(text)
    except ValueError as error:
        raise _refused(key, text, "a number between 0 and 1") from error
    if not 0 < rate < 1:
        raise _refused(key, text, "a number between 0 and 1")
    return rate


def _compression(properties: Mapping[str, str]) -> tuple[str, int | None]:
    key = _PREFIX + "compression-codec"
    text = properties.get(key, "zstd")
    codec = _CODECS.get(text.strip().lower())
    if codec is None:
        raise _refused(key, text, f"one of {', '.join(sorted(_CODECS))}")
    if codec in _WITHOUT_LEVEL:
        return codec, None
    level_key = _PREFIX + "compression-level"
    level_text = properties.get(level_key, "")
    if level_text in ("", "null"):
        return codec, _LEVELS.get(codec)
    lowest, highest = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    wanted = f"a level of {codec}, {lowest} to {highest}"
    try:
        level = int(level_text)
    except ValueError as error:
        raise _refused(level_key, level_text, wanted) from error
    if not lowest <= level <= highest:
        raise _refused(level_key, level_text, wanted)
    return codec, level


def _metrics_mode(properties: Mapping[str, str], key: str) -> str:
    text = properties[key]
    try:
        match_metrics_mode(text)
    except ValueError as error:
        raise _refused(key, text, "none, counts, full or truncate(n)") from error
    return text
