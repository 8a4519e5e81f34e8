"""A table in Azure's storage is optimized, and its orphans are deleted.

Left out by `conftest` unless AMORO_AZURITE names the emulator's blob service (`127.0.0.1:10000`): npm's package
`azurite` brings it (`azurite-blob --skipApiVersionCheck --disableTelemetry`), and pyiceberg writes there by `adlfs`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import uuid
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.client import HTTPConnection
from pathlib import Path

import obstore
import pytest
from obstore.store import AzureStore
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.files.storage.stores import PAGE, ObjectStorage
from amoro_core.model.maintenance import ABSENT, DELETED, Options
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World

AZURITE = os.environ.get("AMORO_AZURITE", "")
#: The emulator's own, which everybody knows.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "lake"
ENDPOINT = f"http://{AZURITE}/{ACCOUNT}"
PROPERTIES = {
    "adls.connection-string": f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={ENDPOINT}",
    "adls.account-name": ACCOUNT,
    "adls.account-key": KEY,
    "adls.blob-storage-authority": AZURITE,
    "adls.dfs-storage-authority": AZURITE,
    "adls.blob-storage-scheme": "http",
    "adls.dfs-storage-scheme": "http",
}
AT_ONCE = {"maintenance.clean-orphan-files.trash-keep": "0"}


@pytest.fixture
def place() -> str:
    """A place of the test's own in the container, which is made if need be."""
    now = format_datetime(datetime.now(UTC), usegmt=True)
    said = f"x-ms-date:{now}\nx-ms-version:2021-08-06\n/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signature = hmac.new(base64.b64decode(KEY), f"PUT{chr(10) * 12}{said}".encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": now,
        "x-ms-version": "2021-08-06",
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}",
    }
    connection = HTTPConnection(AZURITE, timeout=10)
    connection.request("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container", headers=headers)
    assert connection.getresponse().status in (201, 409), "made now, or before"
    connection.close()
    return f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/{uuid.uuid4()}"


def put(path: str) -> str:
    """A file of three bytes."""
    config = {"account_name": ACCOUNT, "account_key": KEY, "endpoint": ENDPOINT}
    store = AzureStore(CONTAINER, config=config, client_options={"allow_http": True})
    obstore.put(store, path.partition("windows.net/")[2], b"xyz")
    return path


def test_files_are_listed_in_pages_and_deleted_in_bulk(place: str) -> None:
    storage = ObjectStorage(place, PROPERTIES)
    paths = [put(f"{place}/data/{number:04d} é%.parquet") for number in range(PAGE + 2)]
    pages = [[one.path for one in page] for page in storage.pages(place)]
    assert (max(map(len, pages)), sorted(path for page in pages for path in page)) == (PAGE, paths)
    assert storage.delete_many(paths[1:]) == dict.fromkeys(paths[1:], DELETED)
    assert storage.delete_many([paths[1]]) == {paths[1]: ABSENT}
    assert [one.path for page in storage.pages(place) for one in page] == paths[:1]
    found = storage.stat(paths[0])
    assert (found.size_bytes, storage.stat(paths[1])) == (3, None)


def test_a_table_is_optimized_and_its_orphans_go(place: str, tmp_path: Path) -> None:
    catalog = SqlCatalog("cat", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=place, **PROPERTIES)
    catalog.create_tables()
    world = World(tmp_path, catalog)
    table = writer.make_table(catalog, "db.t", SCHEMA, properties=AT_ONCE)
    for number in range(3):
        table.append(table.scan().to_arrow().from_pylist([row(number)], table.schema().as_arrow()))
    rows = sorted(table.refresh().scan().to_arrow()["id"].to_pylist())
    process_id = world.begin(OptimizingType.FULL, force=True)
    world.run_all(process_id)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    world.now = datetime.now(UTC) + timedelta(days=5)
    orphan = put(f"{table.location()}/data/orphan.parquet")
    for action in ("clean-orphan-files", "empty-trash"):
        table_id, options = world.table().table_id, Options(confirmed=True)
        begun = world.maintaining.begin(table_id, action, trigger="request", options=options)
        assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    assert ObjectStorage(place, PROPERTIES).stat(orphan) is None
    assert len(list(table.refresh().scan().plan_files())) == 1
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == rows == [0, 1, 2]
    world.close()
    catalog.close()
