"""Keys of metadata files that pyiceberg's model drops: where the client writes the next file, they would be lost."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile

from amoro_core.errors import TableRefused

#: What is there twice in format 1, and under other keys alone in later ones: the current schema, the default spec.
_OF_FORMAT_1 = frozenset({"schema", "partition-spec"})
_NO_SNAPSHOT = -1  # as old writers say that there is no current snapshot


def _keys_of(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items())


#: Long lists, and the keys of their items: these are not written anew to be compared.
_LISTS = {
    "snapshots": _keys_of(Snapshot),
    "snapshot-log": _keys_of(SnapshotLogEntry),
    "metadata-log": _keys_of(MetadataLogEntry),
    "statistics": _keys_of(StatisticsFile),
    "partition-statistics": _keys_of(PartitionStatisticsFile),
}
_BLOBS, _BLOB_KEYS = "blob-metadata", _keys_of(BlobMetadata)

#: Texts that lose nothing, by hash and length: a commit loads the same state several times.
_whole: dict[tuple[int, int], None] = {}
_REMEMBERED = 10_000

_is_written = ContextVar("is_written", default=False)


@contextmanager
def keys_kept(catalog: Catalog) -> Iterator[None]:
    """Refuse, within the block, keys of metadata files that would be lost, if the client writes the next file."""
    token = _is_written.set(isinstance(catalog, MetastoreCatalog))
    try:
        yield
    finally:
        _is_written.reset(token)


def refusing_lost_keys(parse: Callable[[str], TableMetadata]) -> Callable[[str], TableMetadata]:
    """The parser of metadata files, which within `keys_kept` raises TableRefused("metadata") for keys that it drops."""

    def guarded(data: str) -> TableMetadata:
        made = parse(data)
        if not _is_written.get() or (same := (hash(data), len(data))) in _whole:
            return made
        if (key := lost_key(data, made)) is not None:
            raise TableRefused(
                f"the metadata file has the key {key}, which would be lost: this version does not know it",
                reason="metadata",
                hint="Let the engine that wrote it optimize the table, or commit through a REST catalog, whose server"
                " writes the metadata itself.",
            )
        if len(_whole) >= _REMEMBERED:
            _whole.clear()
        _whole[same] = None
        return made

    return guarded


def lost_key(text: str, metadata: TableMetadata) -> str | None:
    """The path of a key in the metadata file's text that a file written from `metadata` would not have; None without.

    Keys whose value is null are not compared. It reads the text a second time, without making objects of it: of a file
    of 33 MB with 60,000 snapshots in a tenth of the time that making the metadata takes.
    """
    read = from_json(text, cache_strings="keys")
    rest = metadata.model_copy(update={name.replace("-", "_"): [] for name in _LISTS})
    written = from_json(rest.model_dump_json())
    read = {key: value for key, value in read.items() if key not in _OF_FORMAT_1}
    if read.get("current-snapshot-id") == _NO_SNAPSHOT:
        del read["current-snapshot-id"]
    lists = ((name, known, read.pop(name, None) or ()) for name, known in _LISTS.items())
    found = (_unknown(name, items, known) for name, known, items in lists)
    return next((one for one in found if one is not None), None) or _lost(read, written, "")


def _unknown(name: str, items: Iterable[Mapping[str, Any]], known: frozenset[str]) -> str | None:
    """The path of a key of an item that its model does not have."""
    for at, item in enumerate(items):
        if not item.keys() <= known:
            for key in sorted(item.keys() - known):
                if item[key] is not None:
                    return f"{name}[{at}].{key}"
        if _BLOBS in item and (inner := _unknown(f"{name}[{at}].{_BLOBS}", item[_BLOBS] or (), _BLOB_KEYS)):
            return inner
    return None


def _lost(read: Any, written: Any, path: str) -> str | None:
    """The path of a key that was read and is not written."""
    if isinstance(read, dict):
        for key, value in read.items():
            if value is None:
                continue
            inner = f"{path}.{key}" if path else key
            if not isinstance(written, dict) or key not in written:
                return inner
            if (found := _lost(value, written[key], inner)) is not None:
                return found
    elif isinstance(read, list) and isinstance(written, list):
        for at, (one, other) in enumerate(zip(read, written, strict=False)):
            if (found := _lost(one, other, f"{path}[{at}]")) is not None:
                return found
    return None
