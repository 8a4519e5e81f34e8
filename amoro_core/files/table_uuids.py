"""Of which table a metadata file is."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable

from amoro_core.errors import DataFileMissing, TableRefused
from amoro_core.files.io import FileAccess, translated
from amoro_core.files.storage import each_at_once

#: Iceberg's writers put the UUID first; of any other file the whole is read.
_BEGINNING = 4096
_UUID_FIRST = re.compile(rb'\s*\{\s*(?:"format-version"\s*:\s*\d+\s*,\s*)?"table-uuid"\s*:\s*"([0-9A-Fa-f-]{36})"')


def table_uuids(access: FileAccess, paths: Iterable[str]) -> dict[str, str]:
    """Of which table each metadata file is; "" where it does not say, or is not there any more.

    Raises CatalogUnavailable or WorkFailed when one can't be looked at.
    """
    return each_at_once(lambda path: _uuid_in(access, path), paths)


def _uuid_in(access: FileAccess, path: str) -> str:
    try:
        with translated(path), access.open_input(path) as stream:
            beginning = bytes(stream.read(_BEGINNING))
        if found := _UUID_FIRST.match(beginning):
            return found[1].decode()
        whole = access.read_bytes(path)
        document = json.loads(gzip.decompress(whole) if whole.startswith(b"\x1f\x8b") else whole)
        return str(document.get("table-uuid") or "") if isinstance(document, dict) else ""
    except (DataFileMissing, TableRefused):  # no table's, by now or at all
        return ""
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile):
        return ""
