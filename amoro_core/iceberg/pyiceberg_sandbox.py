"""Limits of pyiceberg: metadata that its model loses or fails on, format 3, classes that it may import.

What a table's metadata has in its JSON that pyiceberg's model loses or fails on is refused by name. Most metadata is
not parsed a second time: only text that has the key of something lost is, and text that the model could not be made of.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import from_json
from pyiceberg import io as pyiceberg_io
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO, InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import locations as pyiceberg_locations
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV1, TableMetadataV3
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import NestedField, PrimitiveType

from amoro_core.errors import TableRefused
from amoro_core.files.schema.schemas import unusable_default
from amoro_core.files.storage.io import ConfinedFileIO
from amoro_core.model.location_policy import Grant

#: Keys that the model drops, or of which it takes a part only.
_LOST = (b'"encryption-keys"', b'"key-id"', b'"source-ids"')
_FORMATS = (1, 2, 3)
_TYPES = ("variant", "geometry", "geography")
_DEFAULTS = ("initial-default", "write-default")

_Json = Mapping[str, Any]


def refuse_lost(text: str | bytes) -> None:
    """Raise TableRefused ("encryption", "transform") for what the model would silently lose of a metadata file, or of a
    REST catalog's answer that holds its content."""
    data = text.encode() if isinstance(text, str) else text
    if any(key in data for key in _LOST):
        _refuse(text, is_lost=True)


def refuse_unmodelled(text: str | bytes) -> None:
    """Raise TableRefused ("encryption", "transform", "type", "default") for what the model can't be made of, if there
    is a known reason."""
    _refuse(text, is_lost=False)


def _refuse(text: str | bytes, *, is_lost: bool) -> None:
    # Other flaws of the metadata are reported when its model is made.
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        content = json.loads(text)
        metadata = content.get("metadata", content)
        if metadata["format-version"] in _FORMATS:
            _refuse_encryption(metadata)
            _refuse_several_columns(metadata)
            if not is_lost:
                _refuse_types(metadata)
                _refuse_defaults(metadata)


def _refuse_encryption(metadata: _Json) -> None:
    snapshots = metadata.get("snapshots") or ()
    keyed = next((item["snapshot-id"] for item in snapshots if item.get("key-id") is not None), None)
    if not metadata.get("encryption-keys") and keyed is None:
        return
    reason = "the metadata has encryption-keys" if keyed is None else f"snapshot {keyed} has a key-id"
    raise TableRefused(
        f"the table is encrypted: {reason}", reason="encryption", hint="Encrypted tables can't be optimized yet."
    )


def _refuse_several_columns(metadata: _Json) -> None:
    for spec in metadata.get("partition-specs") or ():
        for field in spec["fields"]:
            _refuse_sources(field, f"partition field {field['name']} of spec {spec['spec-id']}")
    for order in metadata.get("sort-orders") or ():
        for number, field in enumerate(order["fields"], start=1):
            _refuse_sources(field, f"field {number} of sort order {order['order-id']}")


def _refuse_sources(field: _Json, where: str) -> None:
    sources = field.get("source-ids") or ()
    if len(sources) > 1:
        raise TableRefused(
            f"{where} has the transform {field['transform']} of {len(sources)} columns,"
            f" {', '.join(map(str, sources))} by their ids, and only transforms of one column are handled",
            reason="transform",
        )


def _refuse_types(metadata: _Json) -> None:
    for where, column in _columns(metadata):
        kind = column["type"]
        if isinstance(kind, str) and kind.startswith(_TYPES):
            raise TableRefused(f"{where} has the type {kind}, which is not handled", reason="type")


def _refuse_defaults(metadata: _Json) -> None:
    for where, column in _columns(metadata):
        for key in _DEFAULTS:
            value = column.get(key)
            if value is None:
                continue
            problem = _problem(column["type"], value)
            if problem:
                raise TableRefused(f"{where} has the {key} {value!r}, {problem}", reason="default")


def _problem(kind: Any, value: Any) -> str | None:
    if not isinstance(kind, str):
        return f"and defaults of a {kind['type']} are not handled"
    primitive_type = NestedField(1, "column", kind).field_type
    why = unusable_default(primitive_type, value) if isinstance(primitive_type, PrimitiveType) else None
    return None if why is None else f"which can't be read as {kind}: {why}"


def _columns(metadata: _Json) -> Iterator[tuple[str, _Json]]:
    """Every field of every schema, the current one first, with words for it."""
    current = metadata["current-schema-id"]
    for schema in sorted(metadata["schemas"], key=lambda item: bool(item.get("schema-id") != current)):
        number = schema.get("schema-id")
        for name, field in _fields(schema, ""):
            yield f"column {name}" if number == current else f"column {name} of schema {number}", field


def _fields(struct: _Json, prefix: str) -> Iterator[tuple[str, _Json]]:
    for field in struct["fields"]:
        yield from _within(field, f"{prefix}{field['name']}")


def _within(field: _Json, name: str) -> Iterator[tuple[str, _Json]]:
    yield name, field
    kind = field["type"]
    if isinstance(kind, str):
        return
    match kind["type"]:
        case "struct":
            yield from _fields(kind, f"{name}.")
        case "list":
            yield from _within({"type": kind["element"]}, f"{name}.element")
        case "map":
            yield from _within({"type": kind["key"]}, f"{name}.key")
            yield from _within({"type": kind["value"]}, f"{name}.value")


#: What is there twice in format 1, and under other keys alone in later ones: the current schema, the default spec.
_OF_FORMAT_1 = frozenset({"schema", "partition-spec"})
_NO_SNAPSHOT = -1  # as old writers say that there is no current snapshot


def _keys_of(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items())


#: Long lists, and the keys of their items: these are not serialized again for the comparison.
_LISTS = {
    "snapshots": _keys_of(Snapshot),
    "snapshot-log": _keys_of(SnapshotLogEntry),
    "metadata-log": _keys_of(MetadataLogEntry),
    "statistics": _keys_of(StatisticsFile),
    "partition-statistics": _keys_of(PartitionStatisticsFile),
}
_BLOBS, _BLOB_KEYS = "blob-metadata", _keys_of(BlobMetadata)

#: Texts that lose nothing, by hash and length: one commit loads the same state several times.
_whole: dict[tuple[int, int], None] = {}
_REMEMBERED = 10_000

_is_written = ContextVar("is_written", default=False)


@contextmanager
def refusing_lost_keys(catalog: Catalog) -> Iterator[None]:
    """Refuse, within the block, keys of metadata files that would be lost, if the client writes the next file."""
    token = _is_written.set(isinstance(catalog, MetastoreCatalog))
    try:
        yield
    finally:
        _is_written.reset(token)


def _refusing(parse: Callable[[str], TableMetadata]) -> Callable[[str], TableMetadata]:
    """Refuse by name what the model of a metadata file would lose and what it can't be made of; within
    `refusing_lost_keys`, raise TableRefused("metadata") for keys that it drops."""

    def guarded(data: str) -> TableMetadata:
        refuse_lost(data)
        try:
            result = parse(data)
        except Exception:  # whatever pyiceberg and pydantic raise
            refuse_unmodelled(data)
            raise
        if not _is_written.get() or (same := (hash(data), len(data))) in _whole:
            return result
        if (key := lost_key(data, result)) is not None:
            raise TableRefused(
                f"the metadata file has the key {key}, which would be lost: this version does not know it",
                reason="metadata",
                hint="Let the engine that wrote it optimize the table, or commit through a REST catalog, whose server"
                " writes the metadata itself.",
            )
        if len(_whole) >= _REMEMBERED:
            _whole.clear()
        _whole[same] = None
        return result

    return guarded


def lost_key(text: str, metadata: TableMetadata) -> str | None:
    """The path of a key in the metadata file's text that a file written from `metadata` would not have; None without.

    Keys whose value is null are not compared. It reads the text a second time, which takes a tenth of the time of
    making the metadata: 33 MB with 60,000 snapshots.
    """
    read = from_json(text, cache_strings="keys")
    rest = metadata.model_copy(update={name.replace("-", "_"): [] for name in _LISTS})
    written = from_json(rest.model_dump_json())
    read = {key: value for key, value in read.items() if key not in _OF_FORMAT_1}
    if read.get("current-snapshot-id") == _NO_SNAPSHOT:
        del read["current-snapshot-id"]
    lists = ((name, keys, read.pop(name, None) or ()) for name, keys in _LISTS.items())
    problems = (_unknown(name, items, keys) for name, keys, items in lists)
    return next((problem for problem in problems if problem is not None), None) or _lost(read, written, "")


def _unknown(name: str, items: Iterable[Mapping[str, Any]], keys: frozenset[str]) -> str | None:
    """The path of a key of an item that its model does not have."""
    for at, item in enumerate(items):
        if not item.keys() <= keys:
            for key in sorted(item.keys() - keys):
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
            if (result := _lost(value, written[key], inner)) is not None:
                return result
    elif isinstance(read, list) and isinstance(written, list):
        for at, (item, other) in enumerate(zip(read, written, strict=False)):
            if (result := _lost(item, other, f"{path}[{at}]")) is not None:
                return result
    return None


UPGRADED: Literal[3] = 3


class ExactSnapshot(AddSnapshotUpdate):
    """The addition of a snapshot as Java's library checks it: pyiceberg compares sequence numbers in format 2 only, and
    without `added-rows` it sets the table's next row id to null."""


@_apply_table_update.register(ExactSnapshot)
def _(update: ExactSnapshot, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    snapshot = update.snapshot
    if isinstance(base_metadata, TableMetadataV3):
        if snapshot.first_row_id is None or snapshot.added_rows is None or base_metadata.next_row_id is None:
            raise ValueError(f"snapshot {snapshot.snapshot_id} lacks its row ids")
        if (snapshot.sequence_number or 0) <= base_metadata.last_sequence_number:
            raise CommitFailedException(
                f"snapshot {snapshot.snapshot_id} has the sequence number {snapshot.sequence_number}, and the table's "
                f"last one is {base_metadata.last_sequence_number}"
            )
        if snapshot.first_row_id < base_metadata.next_row_id:
            raise CommitFailedException(
                f"snapshot {snapshot.snapshot_id} has row ids from {snapshot.first_row_id} on, and the table's "
                f"next one is {base_metadata.next_row_id}"
            )
    return _add_snapshot(update, base_metadata, context)


_add_snapshot = _apply_table_update.dispatch(AddSnapshotUpdate)


class ExactUpgrade(UpgradeFormatVersionUpdate):
    """The upgrade of a table's format to 3, which pyiceberg refuses."""


@_apply_table_update.register(ExactUpgrade)
def _(update: ExactUpgrade, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    if update.format_version != UPGRADED or base_metadata.format_version >= UPGRADED:
        raise ValueError(f"a table of format {base_metadata.format_version} can't become {update.format_version}")
    context.add_update(update)
    return upgraded(base_metadata)


def upgraded(metadata: TableMetadata) -> TableMetadataV3:
    """The metadata of format 1 or 2 in format 3: no file has row ids before the next commit gives them."""
    before = metadata.to_v2() if isinstance(metadata, TableMetadataV1) else metadata
    return TableMetadataV3(**{**before.model_dump(by_alias=True), "format-version": UPGRADED, "next-row-id": 0})


_FILE_IOS = frozenset({pyiceberg_io.ARROW_FILE_IO, pyiceberg_io.FSSPEC_FILE_IO})
LOCATION_PROVIDERS = frozenset(
    f"pyiceberg.table.locations.{name}" for name in ("SimpleLocationProvider", "ObjectStoreLocationProvider")
)
_allowed: frozenset[str] = frozenset()
_installed = False


def allow_classes(names: Iterable[str]) -> None:
    """Also allow these classes to be imported as a FileIO or an auth manager of catalogs and metadata, in the whole
    process. Data files are always read and written by pyarrow, and named by us."""
    global _allowed
    _allowed = frozenset(names)


def install_guards() -> None:
    """Replace pyiceberg's importing functions and its refusal to write format 3 by ours, for the whole process."""
    global _installed
    if _installed:
        return
    _installed = True
    import_file_io = only(_FILE_IOS, pyiceberg_io._import_file_io, "FileIO", allowable=True)
    pyiceberg_io._import_file_io = lambda io_impl, properties: _confined(import_file_io(io_impl, properties))
    infer = pyiceberg_io._infer_file_io_from_scheme
    # If nothing is inferred, pyiceberg uses its own without calling us.
    pyiceberg_io._infer_file_io_from_scheme = lambda path, properties: (
        infer(path, properties) or _confined(PyArrowFileIO(properties))
    )
    pyiceberg_locations._import_location_provider = only(
        LOCATION_PROVIDERS, pyiceberg_locations._import_location_provider, "location provider"
    )
    TableMetadataUtil.parse_raw = staticmethod(_refusing(TableMetadataUtil.parse_raw))  # type: ignore[assignment]
    TableMetadataV3.model_dump_json = IcebergBaseModel.model_dump_json  # type: ignore[method-assign]


_grant: ContextVar[Grant | None] = ContextVar("grant", default=None)
_last_input: ContextVar[str] = ContextVar("last_input", default="")


@contextmanager
def confined_to(grant: Grant) -> Iterator[None]:
    """Confine every FileIO that pyiceberg opens within the block to the grant.

    By itself it reads and writes metadata files only. In an object store these may lie anywhere unless the grant is
    strict: the catalog decides where.
    """
    token, opened = _grant.set(grant), _last_input.set("")
    try:
        yield
    finally:
        _grant.reset(token)
        _last_input.reset(opened)


def last_input() -> str:
    """The last file opened for reading within `confined_to`; "" without one."""
    return _last_input.get()


class _NamingFileIO(ConfinedFileIO):
    """Remembers what it opened, so that an unreadable file can be named: pyiceberg's errors don't."""

    def new_input(self, location: str) -> InputFile:
        _last_input.set(location)
        return super().new_input(location)


def _confined(file_io: FileIO | None) -> FileIO | None:
    grant = _grant.get()
    if file_io is None or grant is None:
        return file_io
    return _NamingFileIO(file_io, grant.prefixes, grant.prefixes, remote=not grant.strict, way_out=grant.way_out)


def confined(file_io: FileIO) -> FileIO:
    """The FileIO, confined if called within `confined_to`."""
    return _confined(file_io) or file_io


def only(names: frozenset[str], load: Callable[..., Any], noun: str, *, allowable: bool = False) -> Callable[..., Any]:
    """The loading function restricted to these names: a table's properties or a server's answer must not run code. With
    `allowable`, also for the names given to `allow_classes`."""
    way_out = "; an administrator may name it under allowed-classes in amoro.yaml" if allowable else ""

    def guarded(name: str, *arguments: Any) -> Any:
        if name not in names and not (allowable and name in _allowed):
            raise TableRefused(
                f"{noun} {name} is not one of pyiceberg's own and is not imported",
                reason="foreign-code",
                hint=f"Allowed are: {', '.join(sorted(names))}{way_out}.",
            )
        return load(name, *arguments)

    return guarded
