"""Orphan files of a table in an object store: found, guarded, deleted; buckets that may be one are not guessed at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import CatalogUnavailable, TableRefused
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.model.maintenance import Surroundings
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.stored import DELETED
from amoro_core.model.tables import TableIdentifier
from tests.engine.commits import Change, commit
from tests.engine.writer import append, make_table
from tests.iceberg.orphan_tables import file_of
from tests.iceberg.test_commit import SCHEMA, rows
from tests.iceberg.test_orphans import condemned, planned
from tests.objectstore.store import BUCKET, ENVIRONMENT, REGION, Store, properties, served, warehouse

#: The store's clock is the machine's: what was written just now is old enough in three days.
LATER = datetime.now(UTC) + timedelta(days=3)


class Shop:
    """A table in a bucket."""

    def __init__(self, store: Store, address: str, home: Path) -> None:
        self.store = store
        self.client = boto3.client("s3", region_name=REGION, endpoint_url=address)
        # The objects of moto outlive its servers.
        with suppress(self.client.exceptions.BucketAlreadyOwnedByYou):
            self.client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        boto3.resource("s3", region_name=REGION, endpoint_url=address).Bucket(BUCKET).objects.all().delete()
        said = {"uri": f"sqlite:///{home / 'catalog.db'}", "warehouse": warehouse(), **properties(address)}
        self.catalog = SqlCatalog("cat", **said)
        self.said = {"type": "sql", **said}
        self.table: Table = make_table(self.catalog, "db.t", SCHEMA)
        append(self.table, rows(1, 2))

    def put(self, below: str, content: bytes = b"xyz") -> str:
        key = f"{self.table.location().removeprefix(f's3://{BUCKET}/')}/{below}"
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)
        return f"s3://{BUCKET}/{key}"

    def opened(self, **more: str) -> IcebergTable:
        config = CatalogConfig("cat", tuple(sorted({**self.said, **more}.items())))
        return IcebergFormat().load(config, TableIdentifier("cat", ("db",), "t"))

    def keys(self) -> set[str]:
        return {f"s3://{BUCKET}/{one['Key']}" for one in self.client.list_objects_v2(Bucket=BUCKET)["Contents"]}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    store = Store()
    with served(store) as address, pytest.MonkeyPatch.context() as environment:
        for key, value in ENVIRONMENT.items():
            environment.setenv(key, value)
        made = Shop(store, address, tmp_path)
        yield made
        made.client.close()
        made.catalog.close()
        close_catalogs()


def test_orphans_in_a_bucket_go_and_nothing_else(shop: Shop) -> None:
    orphans = {shop.put("data/a b%20c.parquet"), shop.put("data/p=1/empty", b""), shop.put("metadata/x-m0.avro")}
    folder = shop.put("data/p=2/", b"")
    before, table = shop.keys(), shop.opened()
    _, plan = planned(table, Surroundings(), now=LATER)
    assert condemned(plan) == orphans
    guard = table.guard()
    assert guard.reachable(orphans) == {}
    assert set(guard.reachable(before)) == before - orphans - {folder}
    assert table.delete_many(orphans) == dict.fromkeys(orphans, DELETED)
    assert before - shop.keys() == orphans


def test_a_store_that_answers_503_and_breaks_off_condemns_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.put("data/orphan.parquet")
    table = shop.opened()
    shop.store.is_busy_for = lambda method, key: 3 if key == f"/{BUCKET}" else 0
    assert len(condemned(planned(table, Surroundings(), now=LATER)[1])) == 1  # asked again
    monkeypatch.setattr("amoro_core.files.objects._RETRIES", {"max_retries": 1, "retry_timeout": timedelta(seconds=1)})
    shop.store.refused.clear()
    shop.store.is_busy_for = lambda method, key: 1000 if key == f"/{BUCKET}" else 0
    with pytest.raises(CatalogUnavailable, match="can't be listed"):
        planned(shop.opened(), Surroundings(), now=LATER)


def test_a_path_that_the_table_names_in_another_bucket_stops_the_search(shop: Shop) -> None:
    """As in apache/amoro#877 and apache/iceberg#1471: by name alone the table's own file was an orphan."""
    moved = shop.put("data/moved.parquet").replace(BUCKET, "old-bucket")
    commit(shop.table, lambda head: Change((file_of(head, moved),)))
    with pytest.raises(TableRefused, match="as a file of s3://old-bucket: it may be the same file") as refused:
        planned(shop.opened(), Surroundings(), now=LATER)
    assert refused.value.reason == "authority"
    table = shop.opened(**{"equal-authorities": f"old-bucket={BUCKET}"})
    assert planned(table, Surroundings(), now=LATER)[1] is None
    with pytest.raises(TableRefused, match="equal to one"):
        planned(shop.opened(**{"equal-schemes": "s3a"}), Surroundings(), now=LATER)
