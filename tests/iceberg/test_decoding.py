"""Manifests decoded by other processes: the same files, whatever becomes of the processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import psutil
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from amoro_core.errors import TableRefused
from amoro_core.iceberg.manifest.columns import Listed, read_here
from amoro_core.iceberg.manifest.decoding import ENDINGS, DecodingWorkers, Worker
from amoro_core.iceberg.manifest.decoding_worker import serve, told
from amoro_core.iceberg.manifest.reading import read_bytes
from amoro_core.iceberg.scan import Known, scan
from tests.engine.writer import append, delete_where, make_catalog, make_table
from tests.iceberg.looking import said
from tests.iceberg.test_column_reading import data_manifests, files_of, listed
from tests.iceberg.test_commit import SCHEMA, rows
from tests.services.rigs import Limits
from tests.services.rigs import limits as limits

#: A program that ends with the first manifest that it is to decode.
FRAGILE = (
    sys.executable,
    "-c",
    "import sys; from multiprocessing.connection import Connection; Connection(int(sys.argv[1])).recv_bytes()",
)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog: SqlCatalog = make_catalog(tmp_path)
    made = make_table(catalog, "db.t", SCHEMA)
    for number in range(3):
        append(made, rows(number, number + 10), files=2)
    delete_where(made, lambda row: row["x"] == 2)
    yield made.refresh()
    catalog.close()


@pytest.fixture(scope="module")
def workers() -> Iterator[DecodingWorkers]:
    """Two at most, for any number of files."""
    made = DecodingWorkers(2, least_files=0)
    yield made
    made.close()


def asked(table: Table) -> list[tuple[ManifestFile, Listed]]:
    return [(one, listed(table, one)) for one in data_manifests(table)]


def test_workers_read_what_is_read_here(table: Table, workers: DecodingWorkers) -> None:
    expected = [found and files_of(found) for found in read_here(table.io, asked(table))]
    found = list(workers.read(table.io, asked(table)))
    assert [one and files_of(one) for one in found] == expected
    assert any(expected)
    assert 1 <= len(workers.processes) <= 2


def test_a_scan_by_workers_is_the_scan_of_before(table: Table, workers: DecodingWorkers) -> None:
    by_entries, by_workers = (scan(table, [table.location()], known=Known(columns=one)) for one in (None, workers.read))
    assert said(by_workers) == said(by_entries)


def test_a_worker_that_is_killed_is_replaced(table: Table, workers: DecodingWorkers) -> None:
    expected = [found and files_of(found) for found in workers.read(table.io, asked(table))]
    before = workers.processes
    for process in before:
        os.kill(process, signal.SIGKILL)
    found = list(workers.read(table.io, asked(table)))
    assert [one and files_of(one) for one in found] == expected
    assert not {*before} & {*workers.processes}


def test_a_manifest_that_ends_every_worker_refuses_its_table(table: Table) -> None:
    fragile = DecodingWorkers(1, 0, FRAGILE)
    with pytest.raises(TableRefused, match=f"has ended {ENDINGS} processes") as refused:
        list(fragile.read(table.io, asked(table)))
    assert refused.value.reason == "planning"
    assert fragile.processes == []
    fragile.close()


def test_where_no_process_can_be_started_manifests_are_decoded_here(table: Table, tmp_path: Path) -> None:
    nowhere = DecodingWorkers(1, 0, (str(tmp_path / "missing"),))
    found = list(nowhere.read(table.io, asked(table)))
    assert [one and files_of(one) for one in found] == [
        one and files_of(one) for one in read_here(table.io, asked(table))
    ]
    nowhere.close()


def test_few_files_begin_no_process(table: Table) -> None:
    few = DecodingWorkers(1)
    assert any(few.read(table.io, asked(table)))
    assert few.processes == []
    few.close()


def test_a_worker_gets_no_secret_and_no_open_file(
    table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    with (tmp_path / "secret").open("w"):
        one = DecodingWorkers(1, 0)
        list(one.read(table.io, asked(table)))
        process = psutil.Process(one.processes[0])
        assert "AWS_SECRET_ACCESS_KEY" not in process.environ()
        assert str(tmp_path / "secret") not in [file.path for file in process.open_files()]
    one.close()
    assert not process.is_running()


def test_a_worker_ends_with_the_other_end_of_its_connection() -> None:
    ours, theirs = Pipe()
    thread = threading.Thread(target=serve, args=(theirs,))
    thread.start()
    ours.close()
    thread.join(60)
    assert not thread.is_alive()


def test_a_worker_says_nothing_of_a_manifest_that_must_be_read_entry_by_entry(table: Table) -> None:
    ours, theirs = Pipe()
    thread = threading.Thread(target=serve, args=(theirs,))
    thread.start()
    manifest, known = asked(table)[0]
    ours.send_bytes(told(known))
    ours.send_bytes(read_bytes(table.io, manifest)[:-1])
    assert ours.recv_bytes() == b""
    ours.close()
    thread.join(60)


def test_workers_that_rest_are_begun_anew(table: Table, workers: DecodingWorkers) -> None:
    list(workers.read(table.io, asked(table)))
    workers.rest()
    assert workers.processes == []
    assert any(workers.read(table.io, asked(table)))


def test_a_worker_that_does_not_answer_has_ended(table: Table, limits: Limits) -> None:
    limits(patience_with_workers=0.1)
    silent = Worker((sys.executable, "-c", "import time; time.sleep(600)"))
    manifest, known = asked(table)[0]
    with pytest.raises(Exception, match="did not answer"):
        silent.decode(read_bytes(table.io, manifest), known)
    silent.end()
