"""Locations in Azure's storage, as Arrow asks for them; `test_azurite` tries the rest on an emulator."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from amoro_core.errors import DataFileMissing
from amoro_core.files.io import open_access


@contextmanager
def emptiness() -> Iterator[tuple[str, list[str]]]:
    """A store on loopback that has no file: its authority, and the paths that it was asked for."""
    asked: list[str] = []

    class Nothing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.send_header("x-ms-error-code", "BlobNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD  # noqa: N815 - the name is HTTP's

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Nothing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("authority", ["lake@account.dfs.core.windows.net", "lake"])
@pytest.mark.parametrize("scheme", ["abfss", "abfs", "wasb", "wasbs"])
def test_a_file_is_looked_for_in_its_container(scheme: str, authority: str) -> None:
    location = f"{scheme}://{authority}/warehouse/t"
    with emptiness() as (store, asked):
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
