"""The work of a clustered group and its result travel whole."""

from dataclasses import replace

import pytest

from amoro_core.model.clustering import ClusterInput, ClusterOutput, Layout, LayoutKey, StageFacts, Strategy
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.rewrite import InputFile, RewriteInput, RewriteOutput, TableContext
from amoro_core.protocol import cluster_codec as codec

FILE = DataFile(
    path="/w/t/data/a.parquet",
    file_format=FileFormat.PARQUET,
    spec_id=0,
    partition=(),
    record_count=3,
    size_bytes=100,
    sequence_number=4,
)
TABLE = TableContext("c", "s.t", "u", 2, "/w/t", "/w/t/data", "{}", "{}", None, (), None, {}, ("/w/t",))
WORK = ClusterInput(
    rewrite=RewriteInput(TABLE, (InputFile(FILE),), (), (), 7, 1 << 20, 3),
    layout=Layout(Strategy.HILBERT, (LayoutKey(1), LayoutKey(2, "bucket[16]", descending=True, nulls_last=True))),
    group_id="0123456789ab",
    seed=2**64 - 1,
    sort_order_id=5,
)
OUTPUT = ClusterOutput(
    rewrite=RewriteOutput((replace(FILE, path="/w/t/data/b.parquet"),), (), 3, 1, 2, 0, 100, 5, 6),
    cuts=b"cuts",
    stages=(StageFacts("sample", 2, 3), StageFacts("write", 4, 2)),
    shuffle_bytes=8,
    spill_bytes=9,
)


def test_work_comes_back_as_it_was() -> None:
    assert codec.decode_cluster_input(codec.encode_cluster_input(WORK)) == WORK


def test_results_come_back_as_they_were() -> None:
    assert codec.decode_cluster_output(codec.encode_cluster_output(OUTPUT)) == OUTPUT


def test_a_strategy_of_tomorrow_is_refused() -> None:
    message = codec.encode_layout(WORK.layout)
    message.strategy = "peano"
    with pytest.raises(ValueError, match="peano"):
        codec.decode_layout(message)
