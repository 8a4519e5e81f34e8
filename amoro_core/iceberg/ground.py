"""Where files of a table lie."""

from collections.abc import Iterable, Mapping

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from amoro_core.iceberg.metadata import data_location, metadata_location
from amoro_core.maintaining.places import Ground, is_below, outermost, settled_names
from amoro_core.model.paths import normalise
from amoro_core.model.properties import parse_value

_PATHS = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")


def ground(table: Table, readable: Iterable[str], writable: Iterable[str], catalog: Mapping[str, str]) -> Ground:
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
        readable=tuple(readable),
    )


def _present(metadata: TableMetadata, location: str | None, places: Iterable[str]) -> tuple[str, ...]:
    """The files that a listing of those locations must find: the metadata file and the newest manifest list."""
    head = metadata.current_snapshot()
    files = [normalise(one) for one in (location, None if head is None else head.manifest_list) if one]
    return tuple(one for one in files if any(is_below(one, place) for place in places))
