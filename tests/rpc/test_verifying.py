"""A verification over the wire; it may read for long, but not for somebody who has gone."""

import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.app import Coordinator
from amoro_core.errors import AttemptAbandoned
from amoro_core.model.verification import RowsDigest
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files

PATIENCE_S = 60


def rewritten(catalog: SqlCatalog) -> None:
    """A table of which a process has replaced the only file by one with the same rows."""
    table = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(table, [row(1)])
    (file,) = oracle.live_files(table)
    added = tuple(write_data_files(table, [row(1)]))
    commit(table, lambda head: Change(added, frozenset({file.path}), summary={"amoro.process-id": "p"}))


def test_both_sides_and_their_checksums_are_answered(coordinator: Coordinator, catalog: SqlCatalog) -> None:
    rewritten(catalog)
    metadata = [("authorization", f"Bearer {coordinator.admin_token.reveal()}")]
    with grpc.insecure_channel(coordinator.address) as channel:
        request = pb.VerifyTableRequest(table="cat.db.t")
        found = AdminServiceStub(channel).VerifyTable(request, metadata=metadata, timeout=PATIENCE_S)
    (comparison,) = found.comparisons
    (partition,) = comparison.partitions
    assert (found.sound, found.files, list(comparison.process_ids)) == (True, 1, ["p"])
    assert (partition.rows_before, partition.rows_after, partition.equal) == (1, 1, True)
    assert len(partition.checksum_before) == 32
    assert partition.checksum_before == partition.checksum_after


def test_reading_ends_when_the_caller_has_gone(
    coordinator: Coordinator, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(catalog)
    reading, stopped = threading.Event(), threading.Event()

    def read_until_told(work: Any, access: Any, lineage: bool, is_cancelled: Callable[[], bool]) -> RowsDigest:
        reading.set()
        pause = threading.Event()
        for _ in range(PATIENCE_S * 20):
            if is_cancelled():
                stopped.set()
                raise AttemptAbandoned("nobody waits")
            pause.wait(0.05)
        return RowsDigest()

    monkeypatch.setattr(coordinator.verifying, "_digest", read_until_told)
    metadata = [("authorization", f"Bearer {coordinator.admin_token.reveal()}")]
    with grpc.insecure_channel(coordinator.address) as channel:
        call = AdminServiceStub(channel).VerifyTable.future(
            pb.VerifyTableRequest(table="cat.db.t"), metadata=metadata, timeout=PATIENCE_S
        )
        assert reading.wait(PATIENCE_S)
        call.cancel()
        assert stopped.wait(PATIENCE_S)
