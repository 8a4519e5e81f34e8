"""What is decoded of manifest lists, and requests to catalogs that end early."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import StructReader
from pyiceberg.manifest import ManifestFile

from amoro_core.iceberg.catalog.timeouts import limit_requests, limits


def decoded_records(monkeypatch: pytest.MonkeyPatch) -> list[ManifestFile]:
    """The records that are decoded from now on."""
    found: list[ManifestFile] = []
    read = StructReader.read

    def watched(reader: StructReader, decoder: BinaryDecoder) -> object:
        made = read(reader, decoder)
        if isinstance(made, ManifestFile):
            found.append(made)
        return made

    monkeypatch.setattr(StructReader, "read", watched)
    return found


@contextmanager
def limited_requests(seconds: float) -> Iterator[None]:
    """Requests to catalogs end after this time."""
    before = limits().whole_s
    limit_requests(timedelta(seconds=seconds))
    try:
        yield
    finally:
        limit_requests(timedelta(seconds=before))
