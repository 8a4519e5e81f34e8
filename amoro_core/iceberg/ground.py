"""Where files of a table lie, and of which table a metadata file is."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Mapping

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from amoro_core.errors import DataFileMissing, TableRefused
from amoro_core.files.io import FileAccess, translated
from amoro_core.files.storage import each_at_once
from amoro_core.iceberg.metadata import data_location, metadata_location
from amoro_core.maintaining.places import Ground, is_below, outermost, settled_names
from amoro_core.model.paths import normalise
from amoro_core.model.properties import parse_value

_PATHS = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
#: Iceberg's writers put the UUID first; of any other file the whole is read.
_BEGINNING = 4096
_UUID_FIRST = re.compile(rb'\s*\{\s*(?:"format-version"\s*:\s*\d+\s*,\s*)?"table-uuid"\s*:\s*"([0-9A-Fa-f-]{36})"')


def ground(table: Table, writable: Iterable[str], catalog: Mapping[str, str]) -> Ground:
    """Where the files of the table lie; `catalog` are its catalog's properties, `writable` where files are deleted.

    Raises TableRefused("configuration") for malformed properties of the catalog.
    """
    metadata = table.metadata
    location = metadata.location.rstrip("/")
    named = [metadata.properties[key] for key in _PATHS if metadata.properties.get(key)]
    places = outermost(
        (f"{location}/data", f"{location}/metadata", data_location(metadata), metadata_location(metadata), *named)
    )
    settled = {
        key: parse_value(key, catalog.get(key, ""), settled_names) for key in ("equal-schemes", "equal-authorities")
    }
    return Ground(
        location=location,
        places=places,
        metadata_place=normalise(metadata_location(metadata)),
        flink_place=normalise(metadata.properties.get("flink.manifests.location") or metadata_location(metadata)),
        writable=tuple(writable),
        partition_fields=tuple(sorted({field.name for spec in metadata.partition_specs for field in spec.fields})),
        must_be_listed=_present(metadata, table.metadata_location, places),
        same_schemes=settled["equal-schemes"],
        same_authorities=settled["equal-authorities"],
    )


def _present(metadata: TableMetadata, location: str | None, places: Iterable[str]) -> tuple[str, ...]:
    """The files that whoever lists those places finds: the metadata file and the newest manifest list."""
    head = metadata.current_snapshot()
    files = [normalise(one) for one in (location, None if head is None else head.manifest_list) if one]
    return tuple(one for one in files if any(is_below(one, place) for place in places))


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
