"""What is decoded of manifest lists."""

from __future__ import annotations

import pytest
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import StructReader
from pyiceberg.manifest import ManifestFile


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
