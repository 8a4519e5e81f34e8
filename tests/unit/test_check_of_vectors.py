"""The check before a commit, of deletion vectors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amoro_core.errors import CheckFailed
from amoro_core.model.commits import FileFacts, Group, PlanRecord, VectorFacts
from amoro_core.model.files import NO_METRICS, DeleteFile, FileFormat, ScannedFile
from amoro_core.model.rewrite import InputFile
from amoro_core.validating import check
from tests.unit.test_check import CONTEXT, CONVERTED, EQUALITY, GROUP, RECORD, C, data, scanned_of

D = data("d", 5, 100, 0)
OF_C = replace(
    CONVERTED,
    path="file:///w/t/data/p-1-1-u2.puffin",
    file_format=FileFormat.PUFFIN,
    metrics=NO_METRICS,
    content_offset=4,
    content_size_bytes=60,
)
OF_D = replace(OF_C, referenced_data_file=D.path, content_offset=64, record_count=3)
OLD = replace(OF_C, path="file:///w/t/data/old.puffin", sequence_number=8, record_count=15)


def record(*vectors: DeleteFile, old: DeleteFile = OLD) -> PlanRecord:
    """Two files that were converted: C with a vector, and D."""
    work = replace(
        GROUP.work,
        table=replace(CONTEXT, format_version=3),
        rewritten=(),
        converted=(InputFile(C, (0, 1)), InputFile(D, (0,))),
        deletes=(EQUALITY, old),
    )
    positions = sum(one.record_count for one in vectors)
    output = replace(
        GROUP.output, data_files=(), delete_files=vectors, rows_read=0, rows_deleted=0, rows_written=0,
        positions_written=positions,
    )  # fmt: skip
    return replace(RECORD, format_version=3, groups=(Group(1, work, output),))


FACTS = {
    OF_C.path: FileFacts(
        OF_C.size_bytes, 23, {}, {}, {4: VectorFacts(C.path, 60, 20, 999), 64: VectorFacts(D.path, 60, 3, 9)}
    )
}


def facts(**changes: object) -> dict[str, FileFacts]:
    return {OF_C.path: replace(FACTS[OF_C.path], **changes)}  # type: ignore[arg-type]


def problem(now: PlanRecord, found: dict[str, FileFacts] = FACTS) -> str:
    scanned: dict[str, ScannedFile] = scanned_of(now)
    with pytest.raises(CheckFailed) as failed:
        check(now, scanned, found)
    return failed.value.message


def test_vectors_of_one_file_for_all_converted_files_pass() -> None:
    now = record(OF_C, OF_D)
    check(now, scanned_of(now), FACTS)


def test_a_position_delete_file_is_none_of_format_3_and_a_vector_none_of_format_2() -> None:
    assert "check format" in problem(record(replace(OF_C, file_format=FileFormat.PARQUET)))
    now = record(OF_C, OF_D)
    work = replace(now.groups[0].work, table=CONTEXT)
    assert "check format" in problem(replace(now, groups=(replace(now.groups[0], work=work),)))


@pytest.mark.parametrize(
    "changed",
    [
        {"content_offset": 5},
        {"content_size_bytes": 61},
        {"record_count": 19},
        {"referenced_data_file": D.path},
    ],
    ids=str,
)
def test_a_vector_that_is_not_where_its_entry_will_say_fails(changed: dict[str, object]) -> None:
    others = () if "referenced_data_file" in changed else (OF_D,)
    assert "check vectors" in problem(record(replace(OF_C, **changed), *others, old=EQUALITY))  # type: ignore[arg-type]


def test_a_vector_beyond_the_end_of_its_data_file_fails() -> None:
    vectors = {**FACTS[OF_C.path].vectors, 64: VectorFacts(D.path, 60, 3, 100)}
    assert f"deletes row 100 of 100 of {D.path}" in problem(record(OF_C, OF_D), facts(vectors=vectors))


def test_a_vector_that_was_not_reported_fails() -> None:
    assert "has vectors that were not reported, at [64]" in problem(record(OF_C))


def test_a_file_of_another_size_fails() -> None:
    assert "check files" in problem(record(OF_C, OF_D), facts(size_bytes=199))


def test_vectors_in_two_files_fail() -> None:
    other = replace(OF_D, path="file:///w/t/data/p-1-1-u3.puffin")
    found = {**facts(vectors={4: VectorFacts(C.path, 60, 20, 999)})}
    found[other.path] = replace(FACTS[OF_C.path], vectors={64: VectorFacts(D.path, 60, 3, 9)})
    assert "its vectors lie in several files" in problem(record(OF_C, other), found)


@pytest.mark.parametrize("vectors", [(OF_D,), (replace(OF_C, record_count=14), OF_D)], ids=["none", "fewer"])
def test_a_vector_with_fewer_positions_than_the_one_it_replaces_fails(vectors: tuple[DeleteFile, ...]) -> None:
    found = {4: VectorFacts(C.path, 60, 14, 999), 64: VectorFacts(D.path, 60, 3, 9)}
    kept = {one.content_offset or 0: found[one.content_offset or 0] for one in vectors}
    assert f"{C.path} had 15 positions and has" in problem(record(*vectors), facts(vectors=kept))


def test_a_converted_file_has_one_new_vector() -> None:
    assert f"{C.path} has more than one" in problem(record(OF_C, replace(OF_C, content_offset=64)))


def test_two_tasks_do_not_write_into_one_file() -> None:
    first = record(OF_C).groups[0]
    second = record(OF_D, old=EQUALITY).groups[0]
    groups = (
        replace(first, work=replace(first.work, converted=first.work.converted[:1])),
        replace(second, work=replace(second.work, converted=second.work.converted[1:])),
    )
    assert "has vectors that were not reported, at [64]" in problem(replace(record(OF_C), groups=groups))
