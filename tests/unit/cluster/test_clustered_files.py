"""What a file's name and footer say of its group, and who reads it."""

import pytest

from amoro_core.model.clustered_files import group_of, group_suffix, layout_text, parse_layout_text
from amoro_core.model.clustering import Layout, LayoutKey, Strategy

LAYOUT = Layout(Strategy.LINEAR, (LayoutKey(3, "bucket[16]", True, True), LayoutKey(5)))


def test_the_group_is_read_from_the_end_of_a_name() -> None:
    assert group_of(f"s3://b/t/data/p=1/0198-1-1-aa{group_suffix('0123456789ab')}.parquet") == "0123456789ab"


@pytest.mark.parametrize(
    "name",
    ["0198-1-1-aa.parquet", "a-g0123456789ab-deletes.parquet", "a-g0123456789AB.parquet", "a-g0123456789abc.parquet"],
)
def test_other_names_tell_no_group(name: str) -> None:
    assert group_of(name) is None


@pytest.mark.parametrize("group", ["", "0123", "0123456789AB", "0123456789ab/"])
def test_an_id_that_is_none_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match="12 lower-case hexadecimal digits"):
        group_suffix(group)


def test_the_layout_survives_its_text() -> None:
    assert parse_layout_text(layout_text(LAYOUT, "0123456789ab")) == ("0123456789ab", LAYOUT)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"group": "x", "strategy": "spiral", "columns": []}'])
def test_a_text_that_is_none_of_ours_is_no_layout(text: str) -> None:
    with pytest.raises(ValueError, match="no description of a layout"):
        parse_layout_text(text)
