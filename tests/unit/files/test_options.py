"""Properties of a table that concern a writer."""

import pytest

from amoro_core.errors import TableRefused
from amoro_core.files.options import WriterOptions, writer_options


def test_a_table_without_properties_is_written_as_java_writes_it() -> None:
    assert writer_options({}) == WriterOptions()
    assert (WriterOptions().codec, WriterOptions().level) == ("zstd", 3)


@pytest.mark.parametrize(
    ("properties", "levels"),
    [
        ({}, (3, 1)),
        ({"compression-codec": "ZSTD"}, (3, 1)),
        ({"compression-level": ""}, (3, 1)),
        ({"compression-level": "3"}, (3, None)),
        ({"compression-codec": "gzip"}, (None, None)),
        ({"compression-codec": "gzip", "compression-level": "3"}, (3, None)),
    ],
)
def test_a_lower_level_is_tried_if_none_is_configured(
    properties: dict[str, str], levels: tuple[int | None, int | None]
) -> None:
    options = writer_options({f"write.parquet.{key}": value for key, value in properties.items()})

    assert (options.level, options.lower_level) == levels


def test_all_properties_are_read() -> None:
    options = writer_options(
        {
            "write.parquet.compression-codec": "GZIP",
            "write.parquet.compression-level": "5",
            "write.parquet.row-group-limit": "10",
            "write.parquet.row-group-size-bytes": "20",
            "write.parquet.page-size-bytes": "30",
            "write.parquet.page-row-limit": "40",
            "write.parquet.dict-size-bytes": "50",
            "write.metadata.metrics.default": "counts",
            "write.metadata.metrics.column.a.b": "truncate(4)",
            "write.metadata.metrics.max-inferred-column-defaults": "7",
            "write.parquet.bloom-filter-enabled.column.a.b": "true",
            "write.parquet.bloom-filter-enabled.column.c": "TRUE",
            "write.parquet.bloom-filter-fpp.column.c": "0.1",
            "write.parquet.bloom-filter-enabled.column.d": "false",
            "write.parquet.bloom-filter-max-bytes": "60",
            "write.unknown": "left alone",
        }
    )

    filters = {"a.b": 0.01, "c": 0.1}
    assert options == WriterOptions(
        "gzip", 5, 10, 20, 30, 40, 50, {"a.b": "truncate(4)"}, "counts", 7, filters, 60, None
    )


@pytest.mark.parametrize(("codec", "arrow"), [("snappy", "snappy"), ("uncompressed", "none"), ("lz4", "lz4")])
def test_a_level_means_nothing_to_codecs_without_levels(codec: str, arrow: str) -> None:
    properties = {"write.parquet.compression-codec": codec, "write.parquet.compression-level": "5"}

    assert (writer_options(properties).codec, writer_options(properties).level) == (arrow, None)


@pytest.mark.parametrize("rate", ["0", "1", "one in ten"])
def test_a_rate_of_bloom_filters_that_is_none_is_refused(rate: str) -> None:
    prefix = "write.parquet.bloom-filter-"

    with pytest.raises(
        TableRefused, match=f"{prefix}fpp.column.a has the malformed value '{rate}': expected a number between 0 and 1"
    ):
        writer_options({f"{prefix}enabled.column.a": "true", f"{prefix}fpp.column.a": rate})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("write.parquet.compression-codec", "zip"),
        ("write.parquet.compression-level", "99"),
        ("write.parquet.compression-level", "high"),
        ("write.parquet.row-group-limit", "0"),
        ("write.parquet.row-group-size-bytes", "128MB"),
        ("write.parquet.page-size-bytes", "-1"),
        ("write.parquet.page-row-limit", "1.5"),
        ("write.parquet.dict-size-bytes", ""),
        ("write.parquet.bloom-filter-enabled.column.a", "yes"),
        ("write.parquet.bloom-filter-max-bytes", "1MB"),
        ("write.metadata.metrics.default", "some"),
        ("write.metadata.metrics.column.a", "truncate(0)"),
    ],
)
def test_a_malformed_value_is_refused_with_its_key(key: str, value: str) -> None:
    with pytest.raises(TableRefused, match="property") as refused:
        writer_options({key: value})
    assert (refused.value.reason, key in str(refused.value), repr(value) in str(refused.value)) == (
        "configuration",
        True,
        True,
    )
