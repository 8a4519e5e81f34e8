from dataclasses import replace

import pytest

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DELETE_PATH_FIELD_ID, ColumnMetrics, DeleteFile, ScannedFile
from amoro_core.planning.files import FileClass, assess, classify, counting_position_deletes, is_file_scoped, is_own
from tests.unit.planning.builders import MIB, data, equality_delete, own_delete, position_delete

CONFIG = OptimizingConfig()
SEGMENT = data("segment", 110 * MIB, records=1000)


def assessed(*deletes: DeleteFile, size_bytes: int = 110 * MIB) -> tuple[bool, bool, bool]:
    file = assess(ScannedFile(replace(SEGMENT, size_bytes=size_bytes), deletes), CONFIG)
    return file.duplicates, file.convertible, file.combinable


def by_bounds(name: str, lower: str, upper: str) -> DeleteFile:
    """A position delete that says by its bounds alone which files it is for."""
    bounds = {DELETE_PATH_FIELD_ID: lower.encode()}, {DELETE_PATH_FIELD_ID: upper.encode()}
    return replace(position_delete(name, None), metrics=ColumnMetrics(lower_bounds=bounds[0], upper_bounds=bounds[1]))


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, FileClass.FRAGMENT),
        (16 * MIB, FileClass.FRAGMENT),
        (16 * MIB + 1, FileClass.UNDERSIZED),
        (96 * MIB, FileClass.UNDERSIZED),
        (96 * MIB + 1, FileClass.TARGET_SIZE),
        (1000 * MIB, FileClass.TARGET_SIZE),
    ],
)
def test_class_follows_from_the_size_limits_included(size_bytes: int, expected: FileClass) -> None:
    assert classify(size_bytes, CONFIG) is expected


def test_segment_without_deletes_needs_nothing() -> None:
    assert assessed() == (False, False, False)


def test_position_deletes_of_exactly_the_ratio_are_not_too_many() -> None:
    assert assessed(position_delete("d", SEGMENT, records=100)) == (False, False, False)


def test_one_more_position_than_the_ratio_is_too_many() -> None:
    assert assessed(position_delete("d", SEGMENT, records=101)) == (True, False, False)


def test_equality_deletes_do_not_count_for_the_ratio() -> None:
    assert assessed(replace(equality_delete("e"), record_count=999)) == (False, True, False)


def test_several_position_deletes_can_be_combined() -> None:
    deletes = position_delete("d1", SEGMENT), position_delete("d2", SEGMENT)
    assert assessed(*deletes) == (False, True, True)


def test_position_delete_of_several_files_is_converted() -> None:
    assert assessed(position_delete("d", None)) == (False, True, False)
    between = by_bounds("d", "/t/data/a.parquet", "/t/data/z.parquet")
    assert assessed(between) == (False, True, False)


@pytest.mark.parametrize("spelled", [SEGMENT.path, f"file://{SEGMENT.path}"])
def test_position_delete_that_names_this_file_by_equal_bounds_is_as_good_as_converted(spelled: str) -> None:
    """As Spark writes it."""
    assert assessed(by_bounds("d", spelled, spelled)) == (False, False, False)


@pytest.mark.parametrize("spelled", [SEGMENT.path, f"file://{SEGMENT.path}"])
def test_several_position_deletes_are_combined_however_they_name_the_file(spelled: str) -> None:
    by_spark = by_bounds("d", spelled, spelled)
    assert assessed(by_spark, by_bounds("e", spelled, spelled)) == (False, True, True)
    assert assessed(by_spark, position_delete("e", SEGMENT)) == (False, True, True)
    assert assessed(by_spark, position_delete("e", None)) == (False, True, True)
    assert assessed(by_spark, own_delete(SEGMENT, sequence_number=1)) == (False, True, True)
    assert assessed(by_spark, equality_delete("e")) == (False, True, False)


def test_equal_bounds_that_are_another_path_name_another_file() -> None:
    for bound in ("/t/data/segment", "/t/data/segment.parquet.1", "/t/dat"):
        delete = by_bounds("d", bound, bound)
        assert (delete.named_file, is_file_scoped(delete, SEGMENT.path)) == (bound, False)


def test_fragments_are_never_converted() -> None:
    deletes = position_delete("d1", SEGMENT), position_delete("d2", SEGMENT), equality_delete("e")
    assert assessed(*deletes, size_bytes=MIB) == (False, False, False)


def test_file_with_only_its_own_delete_is_left_alone() -> None:
    assert assessed(own_delete(SEGMENT)) == (False, False, False)


def test_older_deletes_are_held_by_the_own_delete() -> None:
    old, own, new = (
        position_delete("old", SEGMENT, sequence_number=3),
        own_delete(SEGMENT, sequence_number=3),
        position_delete("new", SEGMENT, sequence_number=4),
    )
    assert counting_position_deletes(ScannedFile(SEGMENT, (old, own))) == (own,)
    assert counting_position_deletes(ScannedFile(SEGMENT, (old, own, new))) == (own, new)


def test_newer_delete_beside_the_own_one_is_combined() -> None:
    deletes = own_delete(SEGMENT, sequence_number=3), position_delete("new", SEGMENT, sequence_number=4)
    assert assessed(*deletes) == (False, True, True)


def test_file_too_short_for_a_single_position_is_rewritten_instead_of_converted() -> None:
    file = assess(ScannedFile(data("short", 110 * MIB, records=9), (equality_delete("e"),)), CONFIG)
    assert (file.convertible, file.too_short) == (False, True)


def test_own_delete_is_recognised_by_name_and_by_the_file_it_names() -> None:
    other = data("other", 110 * MIB)
    own = own_delete(SEGMENT)
    assert is_own(own, SEGMENT)
    assert not is_own(own, other)
    assert not is_own(position_delete("foreign", SEGMENT), SEGMENT)
    assert not is_own(replace(own, referenced_data_file=None), SEGMENT)


def test_own_delete_is_recognised_by_equal_bounds_in_another_spelling() -> None:
    path = b"file:///t/data/segment.parquet"
    bounds = ColumnMetrics(lower_bounds={DELETE_PATH_FIELD_ID: path}, upper_bounds={DELETE_PATH_FIELD_ID: path})
    assert is_own(replace(own_delete(SEGMENT), referenced_data_file=None, metrics=bounds), SEGMENT)


def test_own_delete_of_amoro_is_recognised_by_the_data_files_name() -> None:
    assert is_own(replace(position_delete("x", None), path="/t/data/segment-delete-0001.parquet"), SEGMENT)


def test_live_bytes_leave_out_rows_of_deletes_that_name_this_file_alone() -> None:
    deletes = position_delete("d", SEGMENT, records=250), position_delete("shared", None, records=500)
    file = assess(ScannedFile(replace(SEGMENT, size_bytes=1000), deletes), CONFIG)
    assert file.live_bytes == 750
