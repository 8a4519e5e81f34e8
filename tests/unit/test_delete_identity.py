"""What tells delete files apart: deletion vectors of one Puffin file share its path."""

from dataclasses import replace

import pytest
from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.manifest import DataFileContent, ManifestEntry
from pyiceberg.manifest import FileFormat as EntryFormat
from pyiceberg.typedef import Record

from amoro_core.errors import TableRefused
from amoro_core.iceberg.contradictions import refuse_twice_live
from amoro_core.iceberg.entries import identity_of, to_delete_file
from amoro_core.model.files import DeleteFile, DeleteIdentity, ScannedFile, TableScan
from amoro_core.planning.costs import deletes_of
from amoro_core.planning.partitions import partitions_of
from amoro_core.planning.summary import health_of, summarize
from amoro_core.protocol.codec import decode_delete_file, encode_delete_file
from amoro_core.validating.removal import removable_deletes
from tests.unit.planning.builders import MIB, data, position_delete
from tests.unit.planning.test_evaluating import CONFIG
from tests.unit.test_validating import group

A, B = data("a", 100 * MIB), data("b", 100 * MIB)
WHOLE = position_delete("d", A)


def vector(offset: int, size: int = 40) -> DeleteFile:
    """A part of the one Puffin file, for the file that it was told to be for."""
    name = A if offset == 4 else B
    return replace(WHOLE, content_offset=offset, content_size_bytes=size, referenced_data_file=name.path)


OF_A, OF_B = vector(4), vector(44)
SCAN = TableScan(1, 2, (ScannedFile(A, (OF_A,)), ScannedFile(B, (OF_B,))))


def test_an_ordinary_delete_is_its_whole_file_and_a_vector_a_part_of_it() -> None:
    assert WHOLE.identity == DeleteIdentity("/t/data/d.parquet", 0, 1000)
    assert OF_A.identity == DeleteIdentity("/t/data/d.parquet", 4, 40)
    assert OF_A.numbered == (OF_A.identity, 2)
    assert len({WHOLE.identity, OF_A.identity, OF_B.identity, vector(44, 41).identity}) == 4


@pytest.mark.parametrize("delete", [WHOLE, OF_A])
def test_the_identity_is_kept_between_processes(delete: DeleteFile) -> None:
    assert decode_delete_file(encode_delete_file(delete)) == delete


@pytest.mark.parametrize("delete", [WHOLE, OF_A])
def test_a_manifest_entry_has_the_identity_of_its_delete(delete: DeleteFile) -> None:
    file = EntryFile.from_args(
        _table_format_version=3,
        content=DataFileContent.POSITION_DELETES,
        file_path=delete.path,
        file_format=EntryFormat.PARQUET,  # vectors in Puffin files are refused so far
        partition=Record(),
        record_count=1,
        file_size_in_bytes=delete.size_bytes,
        content_offset=delete.content_offset,
        content_size_in_bytes=delete.content_size_bytes,
    )
    file.spec_id = 0
    entry = ManifestEntry.from_args(sequence_number=2, data_file=file)

    assert identity_of(file) == delete.identity
    assert to_delete_file(entry, ()).numbered == delete.numbered


def test_vectors_of_one_file_count_and_weigh_each() -> None:
    (partition,) = partitions_of(SCAN, CONFIG)

    assert list(deletes_of(SCAN.files).values()) == [OF_A, OF_B]
    assert len(partition.stats.position_deletes) == 2
    assert summarize(SCAN, [partition], health_of([partition.stats], CONFIG)).position_delete_files == 2


def test_a_vector_of_a_rewritten_file_goes_and_that_of_another_in_the_same_file_stays() -> None:
    one = group(1, rewritten=[SCAN.files[0]])

    assert removable_deletes([one], SCAN, 2) == (OF_A,)


def test_only_the_same_part_is_live_twice() -> None:
    refuse_twice_live(SCAN)
    with pytest.raises(TableRefused, match="live more than once"):
        refuse_twice_live(replace(SCAN, dangling=(replace(OF_A, path=f"file:{OF_A.path}"),)))
