"""Files of an object store, listed in pages and deleted many in one request; a busy store is asked again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import boto3
import obstore
import pytest

from amoro_core.errors import CatalogUnavailable
from amoro_core.files import objects
from amoro_core.files.io import FileAccess, open_access
from amoro_core.files.objects import ObjectStorage
from amoro_core.model.paths import key_in_place
from amoro_core.model.stored import ABSENT, DELETED, Ended, KeyRange
from tests.objectstore.store import BUCKET, ENVIRONMENT, REGION, Store, properties, served, warehouse


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Store, FileAccess, boto3.client]]:
    shop = Store()
    with served(shop) as address, pytest.MonkeyPatch.context() as environment:
        for key, value in ENVIRONMENT.items():
            environment.setenv(key, value)
        client = boto3.client("s3", region_name=REGION, endpoint_url=address)
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        places = [warehouse()]
        yield (
            shop,
            open_access(properties(address), warehouse(), read_locations=places, write_locations=places),
            client,
        )
        client.close()


@pytest.fixture
def keys(opened: tuple[Store, FileAccess, boto3.client]) -> Iterator[list[str]]:
    """What is in the table, names of every kind among it, and an empty object for a folder."""
    shop, _, client = opened
    names = ["wh/t/data/a b%20c", "wh/t/data/ä#?x=1/2", "wh/t/data/folder/", *(f"wh/t/data/{n:04}" for n in range(12))]
    for key in (*names, "wh/tt/beside"):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"" if key.endswith("/") else b"abc")
    yield names
    shop.calm()
    for key in listed(client):
        client.delete_object(Bucket=BUCKET, Key=key)


def listed(client: boto3.client) -> list[str]:
    return [one["Key"] for one in client.list_objects_v2(Bucket=BUCKET).get("Contents", ())]


def uri(key: str) -> str:
    return f"s3://{BUCKET}/{key}"


def test_objects_are_listed_looked_at_and_deleted(
    opened: tuple[Store, FileAccess, boto3.client], keys: list[str]
) -> None:
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


def test_a_busy_store_is_asked_again(opened: tuple[Store, FileAccess, boto3.client], keys: list[str]) -> None:
    shop, access, client = opened
    shop.is_busy_for = lambda method, key: 2
    shop.refused.clear()
    assert sum(len(page) for page in access.pages(uri("wh/t"))) == len(keys)
    assert access.delete_many([uri(keys[0])]) == {uri(keys[0]): DELETED}
    shop.calm()
    assert keys[0] not in listed(client)


def test_of_a_request_that_fails_each_file_is_told(
    opened: tuple[Store, FileAccess, boto3.client], keys: list[str]
) -> None:
    """A key that can't be named fails alone; what is gone already is absent."""
    _, access, client = opened
    wanted = [uri(keys[0]), uri("wh/t/data//x"), uri("wh/t/data/gone")]
    done = access.delete_many(wanted)
    assert (done[wanted[0]], done[wanted[2]]) == (DELETED, ABSENT)
    assert done[wanted[1]].ended is Ended.FAILED
    assert "empty path segment" in done[wanted[1]].why
    assert keys[0] not in listed(client)


def test_a_listing_with_a_key_that_cannot_be_named_is_no_listing(
    opened: tuple[Store, FileAccess, boto3.client], keys: list[str]
) -> None:
    _, access, client = opened
    client.put_object(Bucket=BUCKET, Key="wh/t/data//x", Body=b"")
    with pytest.raises(CatalogUnavailable, match="empty path segment"):
        list(access.pages(uri("wh/t")))


def test_a_bucket_that_is_not_there_is_unavailable(opened: tuple[Store, FileAccess, boto3.client]) -> None:
    _, access, _ = opened
    storage = ObjectStorage("s3://elsewhere/", dict(access._io.properties))
    with pytest.raises(CatalogUnavailable, match="can't be listed"):
        list(storage.pages("s3://elsewhere/t"))
    assert storage.delete_many(["s3://elsewhere/t/f"])["s3://elsewhere/t/f"].ended is not Ended.DELETED


def test_ranges_of_keys_hold_each_object_once_and_ask_for_no_earlier_one(
    opened: tuple[Store, FileAccess, boto3.client], keys: list[str], monkeypatch: pytest.MonkeyPatch
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
    opened: tuple[Store, FileAccess, boto3.client], keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, access, _ = opened
    monkeypatch.setattr(objects, "PAGE", 3)
    within = KeyRange("/wh/t/data/0002", "/wh/t/data/0005")
    names = [one.path.rpartition("/")[2] for page in access.pages(uri("wh/t"), within) for one in page]
    assert names == ["0003", "0004", "0005"]
    assert listed_pages(access, KeyRange("", "/wh/t/data/0002")) == [3, 0], (
        "the page after the last key is the last one"
    )


def listed_pages(access: FileAccess, within: KeyRange) -> list[int]:
    return [len(page) for page in access.pages(uri("wh/t"), within)]
