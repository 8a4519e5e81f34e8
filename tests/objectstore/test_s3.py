"""The S3 protocol, by moto's server: coordinator and optimizer as processes on a warehouse in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector, FileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.acceptance.processes import STEADY, Installation, address_of, install, wait_until
from tests.acceptance.tables import assert_optimized_once, look, messy_table, name_of, partitioned_table
from tests.engine import oracle
from tests.objectstore.store import BUCKET, Store, bucket, properties, said, warehouse
from tests.tiers import sample


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[Store, str]]:
    """The store and its address; the environment describes it to pyarrow and boto."""
    shop = Store()
    with bucket(shop) as (address, _):
        yield shop, address


@pytest.fixture(scope="module")
def running(store: tuple[Store, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    directory: Path = tmp_path_factory.mktemp("s3")
    made = install(directory, STEADY, properties={**properties(store[1]), "warehouse": warehouse()})
    made.catalog.close()
    made.catalog = SqlCatalog(
        "cat", uri=f"sqlite:///{directory / 'catalog.db'}?timeout=60", warehouse=warehouse(), **properties(store[1])
    )
    try:
        made.optimizer(address_of(made.up()))
        yield made
    finally:
        made.close()


@pytest.fixture
def shop(store: tuple[Store, str]) -> Iterator[Store]:
    yield store[0]
    store[0].calm()


def data_files(table: Table) -> set[str]:
    """The objects in the table's data directory."""
    found, path = FileSystem.from_uri(f"{table.location()}/data")
    return {f"s3://{one.path}" for one in found.get_file_info(FileSelector(path, recursive=True)) if one.is_file}


def known_files(table: Table) -> set[str]:
    return {
        entry.data_file.file_path
        for snapshot in table.refresh().metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    }


def assert_nothing_is_left(table: Table) -> None:
    """What a process wrote beside its outputs is removed once it has ended: each removal may be refused and retried."""
    wait_until(lambda: data_files(table) == known_files(table), "no object beside the table's files")


def optimized(running: Installation, table: Table) -> str:
    """Optimize fully; the process's id."""
    outcome = running.run("optimize", name_of(table), "--type", "full", "--wait", "-o", "json")
    assert outcome.status == 0, outcome.stderr
    return str(outcome.document["process_id"])


@pytest.mark.parametrize("trouble", sample(["none", "short bursts of 503 and slow reads"], every=2))
def test_a_table_in_s3_is_optimized_and_no_other_object_is_left(
    running: Installation, shop: Store, trouble: str
) -> None:
    """Short bursts are retried below the task, and slow reads are waited for."""
    table = partitioned_table(running.catalog)
    before = look(table)
    assert all(file.path.startswith(f"s3://{BUCKET}/") for file in oracle.live_files(table))
    shop.refused.clear()
    shop.slow_reads = 0
    if trouble != "none":
        shop.is_busy_for = lambda method, key: 1 if "/data/" in key else 0
        shop.pause_s = 0.05

    process_id = optimized(running, table)

    shop.calm()
    assert_optimized_once(table, before, files=3)
    assert {task["attempt"] for task in running.ask("process", "show", process_id)["tasks"]} == {1}
    assert trouble == "none" or {method for method, _ in shop.refused} >= {"GET", "PUT", "HEAD"}
    assert trouble == "none" or shop.slow_reads > 6
    assert_nothing_is_left(table)


def test_longer_bursts_of_503_fail_attempts_and_the_next_ones_go_on(running: Installation, shop: Store) -> None:
    table = messy_table(running.catalog)
    before = look(table)
    paths = sorted(file.path for file in oracle.live_files(table) if file.content == oracle.DATA)
    burst = paths[0].removeprefix(f"s3://{BUCKET}/")
    shop.refused.clear()
    shop.is_busy_for = lambda method, key: 8 if (method, key) == ("HEAD", burst) else 0

    process_id = optimized(running, table)

    assert_optimized_once(table, before)
    assert shop.refused["HEAD", burst] == 8
    failed = [entry for process in running.processes for entry in said(process.output, "task.failed")]
    mine = [entry for entry in failed if entry["attempt"].startswith(process_id)]
    assert mine
    assert all(paths[0].removeprefix("s3://") in entry["error"] for entry in mine)
    assert_nothing_is_left(table)


def test_a_store_that_stays_busy_fails_the_process_by_the_object_after_bounded_tries(
    running: Installation, shop: Store
) -> None:
    table = messy_table(running.catalog, {"self-optimizing.execute.num-retries": "1"})
    before = look(table)
    objects = data_files(table)
    paths = sorted(file.path for file in oracle.live_files(table) if file.content == oracle.DATA)
    stuck = paths[0].removeprefix(f"s3://{BUCKET}/")
    shop.refused.clear()
    shop.is_busy_for = lambda method, key: 10**6 if key == stuck else 0

    outcome = running.run("optimize", name_of(table), "--type", "full", "--wait")

    assert outcome.status == 1
    assert stuck in " ".join(outcome.said)
    assert 2 <= shop.refused["HEAD", stuck] <= 40
    shop.calm()
    assert look(table) == before
    assert data_files(table) == objects
    optimized(running, table)
    assert_optimized_once(table, before)
