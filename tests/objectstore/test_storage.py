"""Files of an object store: listed in pages, deleted many in one request, asked for again when it is busy; orphans."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.actions.table_services import paimon_options
from amoro_core.errors import CatalogUnavailable, DataFileMissing, TableRefused
from amoro_core.files.storage import stores
from amoro_core.files.storage.io import FileAccess, open_access
from amoro_core.files.storage.stores import ObjectStorage
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.formats.paimon import PaimonFormat
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.maintenance.table_services import ServiceConfig
from amoro_core.model.maintenance import ABSENT, DELETED, Ended, KeyRange, Surroundings
from amoro_core.model.paths import key_in_place
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from tests.engine.commits import Change, commit
from tests.engine.writer import append, make_table
from tests.formats.paimon_tables import File, PaimonDirectory
from tests.iceberg.orphan_tables import file_of
from tests.iceberg.scenarios import SCHEMA, http_server, rows
from tests.iceberg.test_orphans import condemned, planned
from tests.objectstore.store import BUCKET, Store, bucket, properties, warehouse

Opened = tuple[Store, FileAccess, Any]


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Store, str, Any]]:
    """A store, its address, and boto's client of it."""
    shop = Store()
    with bucket(shop) as (address, client):
        yield shop, address, client


@pytest.fixture(scope="module")
def opened(place: tuple[Store, str, Any]) -> Opened:
    shop, address, client = place
    places = [warehouse()]
    return shop, open_access(properties(address), warehouse(), read_locations=places, write_locations=places), client


@pytest.fixture
def keys(opened: Opened) -> Iterator[list[str]]:
    """What is in the table, names of every kind among it, and an empty object for a folder."""
    shop, _, client = opened
    names = ["wh/t/data/a b%20c", "wh/t/data/ä#?x=1/2", "wh/t/data/folder/", *(f"wh/t/data/{n:04}" for n in range(12))]
    for key in (*names, "wh/tt/beside"):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"" if key.endswith("/") else b"abc")
    yield names
    empty(shop, client)


def empty(shop: Store, client: Any) -> None:
    """Serve honestly, and let nothing be left in the bucket."""
    shop.calm()
    for key in listed(client):
        client.delete_object(Bucket=BUCKET, Key=key)


def listed(client: Any) -> list[str]:
    return [one["Key"] for one in client.list_objects_v2(Bucket=BUCKET).get("Contents", ())]


def uri(key: str) -> str:
    return f"s3://{BUCKET}/{key}"


def test_objects_are_listed_looked_at_and_deleted(opened: Opened, keys: list[str]) -> None:
    shop, access, client = opened
    found = {one.path: one for page in access.pages(uri("wh/t")) for one in page}
    assert set(found) == {uri(key).rstrip("/") for key in keys}
    seen = access.stat_many([uri(key) for key in keys])
    assert {path for path, one in seen.items() if one is None} == {uri("wh/t/data/folder/")}  # no file, and kept
    assert all(one == found[path] for path, one in seen.items() if one is not None)

    shop.refused.clear()
    wanted = [uri(key).replace("s3://", "s3a://") for key in keys if not key.endswith("/")]
    assert access.delete_many(wanted) == dict.fromkeys(wanted, DELETED)
    assert set(listed(client)) == {"wh/t/data/folder/", "wh/tt/beside"}  # and no empty object for a folder
    assert [request[0] for request in shop.refused if request[0] in ("POST", "DELETE")] == ["POST"]  # in one request


def test_a_busy_store_is_asked_again(opened: Opened, keys: list[str]) -> None:
    shop, access, client = opened
    shop.is_busy_for = lambda method, key: 2
    shop.refused.clear()
    assert sum(len(page) for page in access.pages(uri("wh/t"))) == len(keys)
    assert access.delete_many([uri(keys[0])]) == {uri(keys[0]): DELETED}
    shop.calm()
    assert keys[0] not in listed(client)


def test_a_key_that_cannot_be_named_is_told_and_its_listing_is_none(opened: Opened, keys: list[str]) -> None:
    """It alone fails of a request; what is gone already is absent."""
    _, access, client = opened
    wanted = [uri(keys[0]), uri("wh/t/data//x"), uri("wh/t/data/gone")]
    done = access.delete_many(wanted)
    assert (done[wanted[0]], done[wanted[2]]) == (DELETED, ABSENT)
    assert done[wanted[1]].ended is Ended.FAILED
    assert "empty path segment" in done[wanted[1]].why
    assert keys[0] not in listed(client)
    client.put_object(Bucket=BUCKET, Key="wh/t/data//x", Body=b"")
    with pytest.raises(CatalogUnavailable, match="empty path segment"):
        list(access.pages(uri("wh/t")))


def test_a_bucket_that_is_not_there_is_unavailable(place: tuple[Store, str, Any]) -> None:
    storage = ObjectStorage("s3://elsewhere/", dict(properties(place[1])))
    with pytest.raises(CatalogUnavailable, match="can't be listed"):
        list(storage.pages("s3://elsewhere/t"))
    assert storage.delete_many(["s3://elsewhere/t/f"])["s3://elsewhere/t/f"].ended is not Ended.DELETED


def test_ranges_of_keys_hold_each_object_once_and_ask_for_no_earlier_one(
    opened: Opened, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As listing tasks divide a table: a cut is any path, also one with characters that URLs encode."""
    _, access, _ = opened
    every = sorted((one for page in access.pages(uri("wh/t")) for one in page), key=lambda one: one.path)
    key_of = {one.path: key_in_place(one.path) for one in every}
    cuts = sorted([*key_of.values(), "/wh/t/data/0005x", "/wh/t/data/a b%20", "/wh/a", "/wh/t/data/ä#?x=1/", "/wh/u"])
    for chosen in (cuts, cuts[::3], cuts[:1], cuts[-1:], cuts[5:9]):
        ranges = [KeyRange(after, until) for after, until in itertools.pairwise(["", *chosen, ""])]
        found = [[one for page in access.pages(uri("wh/t"), within) for one in page] for within in ranges]
        assert sorted(itertools.chain(*found), key=lambda one: one.path) == every
        assert all(within.holds(key_of[one.path]) for within, some in zip(ranges, found, strict=True) for one in some)
    asked: list[str | None] = []
    list_objects = obstore.list

    def listing(*given: Any, offset: str | None = None, **more: Any) -> Any:
        asked.append(offset)
        return list_objects(*given, offset=offset, **more)

    monkeypatch.setattr(obstore, "list", listing)
    for after in ("", "/wh/t/data/0009", "/wh/a"):
        assert len(listed_pages(access, KeyRange(after))) == 1
    assert asked == [None, "wh/t/data/0009", None]


def test_a_range_of_many_pages_ends_where_its_last_key_is(
    opened: Opened, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, access, _ = opened
    monkeypatch.setattr(stores, "PAGE", 3)
    within = KeyRange("/wh/t/data/0002", "/wh/t/data/0005")
    names = [one.path.rpartition("/")[2] for page in access.pages(uri("wh/t"), within) for one in page]
    assert names == ["0003", "0004", "0005"]
    assert listed_pages(access, KeyRange("", "/wh/t/data/0002")) == [3, 0], (
        "the page after the last key is the last one"
    )


def listed_pages(access: FileAccess, within: KeyRange) -> list[int]:
    return [len(page) for page in access.pages(uri("wh/t"), within)]


#: The store's clock is the machine's: what was written just now is old enough in three days.
LATER = datetime.now(UTC) + timedelta(days=3)


class Shop:
    """A table in a bucket."""

    def __init__(self, store: Store, address: str, client: Any, home: Path) -> None:
        self.store = store
        self.client = client
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
        return {f"s3://{BUCKET}/{key}" for key in listed(self.client)}


@pytest.fixture
def shop(place: tuple[Store, str, Any], tmp_path: Path) -> Iterator[Shop]:
    store, address, client = place
    made = Shop(store, address, client, tmp_path)
    yield made
    made.catalog.close()
    close_catalogs()
    empty(store, client)


def test_orphans_in_a_bucket_go_and_nothing_else(shop: Shop) -> None:
    orphans = {shop.put("data/a b%20c.parquet"), shop.put("data/p=1/empty", b""), shop.put("metadata/x-m0.avro")}
    folder = shop.put("data/p=2/", b"")
    before, table = shop.keys(), shop.opened()
    _, plan = planned(table, Surroundings(), now=LATER)
    assert condemned(plan) == orphans
    guard = table.guard()
    assert guard.reachable(orphans) == {}
    assert set(guard.reachable(before)) == before - orphans - {folder}
    assert table.access().delete_many(orphans) == dict.fromkeys(orphans, DELETED)
    assert before - shop.keys() == orphans


def test_a_store_that_answers_503_and_breaks_off_condemns_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.put("data/orphan.parquet")
    table = shop.opened()
    shop.store.is_busy_for = lambda method, key: 3 if key == f"/{BUCKET}" else 0
    assert len(condemned(planned(table, Surroundings(), now=LATER)[1])) == 1  # asked again
    monkeypatch.setattr(
        "amoro_core.files.storage.stores._RETRIES", {"max_retries": 1, "retry_timeout": timedelta(seconds=1)}
    )
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


@pytest.mark.parametrize("authority", ["lake@account.dfs.core.windows.net", "lake"])
@pytest.mark.parametrize("scheme", ["abfss", "abfs", "wasb", "wasbs"])
def test_a_file_is_looked_for_in_its_container(scheme: str, authority: str) -> None:
    location = f"{scheme}://{authority}/warehouse/t"
    asked: list[str] = []

    def missing(path: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str], str]:
        asked.append(path)
        return 404, {"x-ms-error-code": "BlobNotFound"}, ""

    with http_server(missing) as address:
        store = address.removeprefix("http://")
        properties = {
            "adls.account-name": "account",
            "adls.account-key": "c2VjcmV0",
            "adls.blob-storage-authority": store,
            "adls.dfs-storage-authority": store,
            "adls.blob-storage-scheme": "http",
            "adls.dfs-storage-scheme": "http",
        }
        access = open_access(properties, location, read_locations=[location], write_locations=[])
        with pytest.raises(DataFileMissing):
            access.read_bytes(f"{location}/data/a #b.parquet")
    assert {path.partition("?")[0] for path in asked} == {"/account/lake/warehouse/t/data/a%20%23b.parquet"}


def test_paimon_tables_in_a_bucket_are_read_as_on_disk_and_not_serviced(
    place: tuple[Store, str, Any], tmp_path: Path
) -> None:
    store, address, client = place
    made = PaimonDirectory(tmp_path / "lake" / "db.db" / "t")
    made.commit(*(File(f"data-{at}") for at in range(7)))
    for path in (one for one in tmp_path.rglob("*") if one.is_file()):
        key = path.relative_to(tmp_path).as_posix()
        client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    there, name = (
        {"type": "paimon", "warehouse": uri("lake"), **properties(address)},
        TableIdentifier("cat", ("db",), "t"),
    )
    here = CatalogConfig("cat", (("type", "paimon"), ("warehouse", str(tmp_path / "lake"))))
    try:
        config = CatalogConfig("cat", tuple(there.items()))
        assert PaimonFormat().list_tables(config) == [name]
        table = PaimonFormat().load(config, name)
        assert table.contents == PaimonFormat().load(here, name).contents
        with pytest.raises(TableRefused, match="in s3 a commit may replace another one"):
            paimon_options(table, ServiceConfig())
        with pytest.raises(CatalogUnavailable, match="does not exist"):
            PaimonFormat().list_tables(CatalogConfig("cat", tuple({**there, "warehouse": uri("gone")}.items())))
    finally:
        empty(store, client)
