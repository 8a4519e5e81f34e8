"""What goes wrong with format 3 where one does not look out, each with the test that holds it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
#: By the trap: the tests that fail where it is stepped into.
HELD_BY = {
    "a key that the client does not know is lost when it writes the metadata": (
        ("iceberg/test_kept_keys.py", "test_in_every_format_an_unknown_key_is_refused_and_known_ones_are_not"),
        ("iceberg/test_kept_keys.py", "test_a_key_that_comes_between_staging_and_sending_is_not_lost"),
    ),
    "the next row id becomes null with a snapshot that does not say how many were given": (
        ("iceberg/test_row_ids.py", "test_the_list_and_the_snapshot_say_from_where_on_how_many_ids_were_given"),
        ("iceberg/test_row_ids.py", "test_a_table_without_a_next_row_id_is_not_committed_to"),
    ),
    "an id is given a second time": (
        ("iceberg/test_row_ids.py", "test_ids_that_the_table_would_give_again_are_refused"),
        ("iceberg/test_row_ids.py", "test_a_snapshot_with_ids_that_others_have_or_without_any_is_not_added"),
    ),
    "the first row id of manifests is not read from their list": (
        ("iceberg/test_row_ids.py", "test_a_scan_tells_the_first_row_id_of_each_file"),
    ),
    "removed entries count when ids are inherited": (
        ("iceberg/test_row_ids.py", "test_files_inherit_in_order_and_deleted_ones_take_no_id"),
    ),
    "rows that were there before do not count when ids are given to a manifest": (
        ("iceberg/test_row_ids.py", "test_a_list_gives_ids_to_data_manifests_without_one_by_their_live_rows"),
    ),
    "merging loses ids that entries inherit": (("iceberg/test_row_ids.py", "test_merging_manifests_keeps_every_id"),),
    "old files of an upgraded table stay without ids": (
        ("iceberg/test_row_ids.py", "test_the_first_commit_after_an_upgrade_gives_ids_to_every_file"),
    ),
    "an input gets ids while its rows are rewritten without": (
        ("unit/test_check.py", "test_an_input_whose_rows_got_other_ids_since_the_plan_refuses_its_group"),
        ("unit/test_following.py", "test_an_input_whose_rows_got_ids_drops_the_group_unless_it_stays"),
    ),
    "rewritten rows look updated": (
        ("unit/rewrite/test_lineage.py", "test_rows_without_stored_lineage_get_that_of_their_file_by_their_position"),
        ("services/test_lineage.py", "test_every_row_keeps_its_lineage_however_often_it_is_rewritten"),
    ),
    "lineage is stored per file although some of its rows have none": (
        ("unit/rewrite/test_lineage.py", "test_stored_lineage_goes_before_that_of_the_file_row_by_row"),
    ),
    "a user's column of the name is taken for the row id": (
        ("unit/rewrite/test_lineage.py", "test_a_column_of_the_table_with_the_same_name_is_another_one"),
    ),
    "two vectors for one data file make the table unreadable": (
        (
            "unit/test_vectors.py",
            "test_a_commit_that_leaves_two_vectors_for_one_data_file_conflicts_and_names_both",
        ),
        ("services/test_vectors.py", "test_a_head_with_two_vectors_for_one_file_is_refused_and_nothing_changes"),
    ),
    "position delete files are applied beside a vector": (
        ("unit/test_matching.py", "test_position_delete_files_do_not_apply_beside_a_vector"),
        ("unit/test_matching.py", "test_position_delete_files_beside_a_vector_still_apply_to_other_files"),
    ),
    "a Puffin file goes while a snapshot has another of its vectors": (
        (
            "services/test_vectors.py",
            "test_a_puffin_file_is_deleted_with_the_last_snapshot_that_has_one_of_its_vectors",
        ),
        ("unit/test_vectors.py", "test_a_vector_is_removed_by_its_part_of_the_file_alone"),
    ),
    "a damaged vector deletes other rows": (
        ("unit/test_vectors.py", "test_a_broken_vector_is_told_with_its_place"),
        ("unit/test_vectors.py", "test_a_position_beyond_the_file_is_told"),
    ),
    "byte orders are exchanged": (
        ("unit/test_vectors.py", "test_a_file_of_vectors_is_read_by_pyiceberg_and_by_range"),
    ),
    "a vector that others wrote meanwhile is replaced, not joined": (
        ("unit/test_following.py", "test_the_new_vector_holds_the_rows_of_both_and_both_go"),
        ("services/test_vectors.py", "test_vectors_that_come_while_files_are_converted_are_joined"),
    ),
    "folding never ends": (("unit/planning/test_vectors.py", "test_what_was_folded_needs_no_further_plan"),),
    "a position is translated without the rows that were left out before it": (
        ("unit/test_following.py", "test_each_hidden_row_is_found_where_it_was_written"),
        ("unit/rewrite/test_position_maps.py", "test_each_row_is_found_where_the_map_says"),
    ),
    "a row that came back is in no output": (
        ("unit/test_following.py", "test_a_row_that_was_deleted_by_position_and_came_back_drops_the_group"),
        ("unit/test_following.py", "test_a_row_of_an_equality_delete_that_is_gone_drops_the_group"),
    ),
    "rows of outputs in another order are followed by their positions": (
        ("services/test_clustered_rows.py", "test_a_result_that_claims_to_tell_where_rows_went_is_not_believed"),
    ),
    "what an attempt that lost has written stays": (
        ("services/test_followed_rows.py", "test_deletes_that_an_attempt_carried_over_are_removed_when_it_lost"),
    ),
    "a column of the type unknown is taken for missing once it has another": (
        (
            "unit/rewrite/test_types_of_format_3.py",
            "test_a_delete_by_a_column_that_was_unknown_deletes_the_rows_in_which_it_is_null",
        ),
    ),
    "a date before its promotion is read as a part of a timestamp": (
        ("unit/rewrite/test_types_of_format_3.py", "test_dates_become_the_beginnings_of_their_days"),
    ),
    "what pyiceberg can't parse shows as its error": (
        ("iceberg/test_raw_metadata.py", "test_what_the_model_lacks_is_refused_when_a_table_is_loaded"),
    ),
    "another version of pyiceberg writes format 3 by itself": (
        ("iceberg/test_row_ids.py", "test_pyiceberg_still_writes_no_format_3_by_itself"),
    ),
    "a writer deletes rows of files that were replaced before": (
        ("services/test_late_deletes.py", "test_deletes_of_replaced_files_are_told_once_with_who_wrote_them"),
    ),
}


@pytest.mark.parametrize("trap", HELD_BY)
def test_the_tests_that_hold_the_trap_exist(trap: str) -> None:
    for path, name in HELD_BY[trap]:
        tree = ast.parse((TESTS / path).read_text())
        assert name in {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
