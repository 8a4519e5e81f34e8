"""Random tables of metadata alone: manifests with the entries of files that nobody has written.

Everything that decides which delete applies to which data file is random by the seed: tables of formats 1 and 2 and
upgraded ones, to 3, too, specs of all kinds of transforms, of dropped columns too, sequence numbers inherited and
explicit, bounds and null counts that are there or missing, deletes of every kind and scope.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import LongType, NestedField, PrimitiveType, StructType

from tests.engine.files import POSITION_SCHEMA
from tests.engine.manifests import DataManifestV1, DataManifestV2, DeleteManifestV2, DeleteManifestV3

ENTRIES_OF: TableVersion = 3  # the one format whose entries have all fields in pyiceberg
PATH_ID = POSITION_SCHEMA.fields[0].field_id
#: As it was when the files were written. Column 7 was dropped since, column 6 promoted.
OLD_SCHEMA = Schema(
    NestedField(1, "id", "long", required=True),
    NestedField(2, "part", "string", required=False),
    NestedField(3, "day", "date", required=False),
    NestedField(4, "at", "timestamptz", required=False),
    NestedField(5, "value", "string", required=False),
    NestedField(6, "number", "int", required=False),
    NestedField(7, "gone", "string", required=False),
    NestedField(8, "price", "decimal(10, 2)", required=False),
    NestedField(9, "ratio", "double", required=False),
    NestedField(10, "uid", "uuid", required=False),
    NestedField(11, "box", StructType(NestedField(12, "inner", "long", required=True)), required=False),
    schema_id=0,
)
SCHEMA = Schema(
    *(one for one in OLD_SCHEMA.fields if one.field_id not in (6, 7)),
    NestedField(6, "number", "long", required=False),
    schema_id=1,
)
KEYS = ((1,), (5,), (1, 5), (6,), (3, 6), (9,), (10,), (1, 10), (12,), (8, 12))
MEASURED = (*range(1, 11), 12)  # columns with counts and bounds
#: Of a partition field: the column and the transform.
TRANSFORMS = (
    *((2, "identity"), (1, "bucket[3]"), (5, "truncate[2]"), (8, "truncate[100]"), (3, "day"), (4, "month")),
    *((6, "bucket[2]"), (7, "identity"), (9, "identity"), (2, "void"), (7, "void")),
)
#: Values of columns and of partition fields, by type.
VALUES: dict[str, tuple[Any, ...]] = {
    "string": ("a", "b", "ü"),
    "long": (1, 5, 9),
    "int": (0, 1, 2),
    "date": (-1, 0, 19_000),
    "timestamptz": (0, 1_000_000, 2_000_000),
    "decimal(10, 2)": (Decimal("-1.00"), Decimal("0.00"), Decimal("1.00")),
    "uuid": tuple(uuid.UUID(int=one) for one in (1, 2**63, 2**127)),
    "double": (0.0, -0.0, float("nan"), 1.5),
}


class RandomTable(NamedTuple):
    """Where the metadata lies."""

    location: str
    metadata_location: str
    places: Mapping[str, str]  # of data files and position deletes, by path: spec and partition


class _Place(NamedTuple):
    spec: PartitionSpec
    partition: tuple[Any, ...]

    @property
    def key(self) -> str:
        """Equal for equal places; NaN is NaN, and 0.0 is not −0.0."""
        return repr((self.spec.spec_id, self.partition))


@dataclass(slots=True)
class _Making:
    """What there is of a table so far."""

    chance: random.Random
    location: str
    io: FileIO
    version: int
    specs: list[PartitionSpec]
    first_number: int  # of the first commit in format 2; what came before has the number 0
    data: list[tuple[str, _Place]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    manifests: list[ManifestFile] = field(default_factory=list)
    files: int = 0
    vectors: dict[str, str] = field(default_factory=dict)  # the Puffin files of data files, by path


def make_random_table(root: Path, seed: int) -> RandomTable:
    """Write the metadata of the seed's table below the directory."""
    chance = random.Random(seed)
    location = (root / f"table{seed}").as_uri()
    kind = chance.choices(("1", "2", "upgraded", "3"), (1, 11, 6, 4))[0]
    version, io = {"1": 1, "3": 3}.get(kind, 2), load_file_io({}, location)
    making = _Making(chance, location, io, version, _specs(chance), chance.randint(1, 2) if kind == "upgraded" else 0)
    commits = chance.randint(3, 6)
    for number in range(1, commits + 1):
        # Data, deletes or both of one commit, in manifests of their own for each spec.
        if version == 1 or number <= making.first_number:
            _add_data(making, 0)
            continue
        if chance.random() < 0.85:
            _add_data(making, number)
        if chance.random() < 0.8:
            _add_deletes(making, number)
    last_number = 0 if version == 1 else commits
    list_path = f"{location}/metadata/snap-1.avro"
    # Upgraded tables keep their lists and manifests.
    with write_manifest_list(min(version, 2), io.new_output(list_path), 1, None, last_number, "deflate") as writer:
        writer.add_manifests(making.manifests)
    metadata = json.dumps(_metadata(making, last_number, list_path))
    path = f"{location}/metadata/v1.metadata.json"
    with io.new_output(path).create() as output:
        output.write(metadata.encode())
    return RandomTable(location, path, making.places)


def _specs(chance: random.Random) -> list[PartitionSpec]:
    """One to three specs, unpartitioned ones more often than chance would have it."""
    specs = []
    last = chance.randint(0, 2)
    for spec_id in range(last + 1):
        count = chance.choice((0, 1, 1, 2))
        chosen = chance.sample(range(len(TRANSFORMS)), count)
        if spec_id == last:
            # Java reads no table whose current spec partitions by a column that is gone.
            chosen = [at for at in chosen if at != 7]
        named = ((at, *TRANSFORMS[at]) for at in sorted(chosen))
        fields = (PartitionField(source, 1000 + at, transform, f"field{at}") for at, source, transform in named)
        specs.append(PartitionSpec(*fields, spec_id=spec_id))
    return specs


def _metadata(making: _Making, last_number: int, list_path: str) -> dict[str, Any]:
    snapshot = {
        "snapshot-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "manifest-list": list_path,
        "summary": {"operation": "overwrite"},
        "schema-id": 1,
    }
    specs = [json.loads(one.model_dump_json()) for one in making.specs]
    metadata = {
        "format-version": making.version,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": making.location,
        "last-updated-ms": 1_700_000_000_000,
        "last-column-id": 12,
        "current-schema-id": 1,
        "schemas": [json.loads(one.model_dump_json()) for one in (OLD_SCHEMA, SCHEMA)],
        "default-spec-id": making.specs[-1].spec_id,
        "partition-specs": specs,
        "last-partition-id": 999 + len(TRANSFORMS),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "current-snapshot-id": 1,
        "snapshots": [snapshot],
        "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
    }
    if making.version == 1:
        return metadata | {"schema": metadata["schemas"][1], "partition-spec": specs[-1]["fields"]}
    snapshot["sequence-number"] = last_number
    if making.version == 3:
        metadata["next-row-id"] = 0
    return metadata | {"last-sequence-number": last_number}


# --- commits ----------------------------------------------------------------------------------------------------------


def _add_data(making: _Making, number: int) -> None:
    chance = making.chance
    spec = chance.choice(making.specs)
    entries = []
    for _ in range(chance.randint(1, 3)):
        place = _Place(spec, _partition(chance, spec))
        path = _new_path(making, "data")
        making.places[path] = place.key
        file = _file(path, place, DataFileContent.DATA, _column_metrics(chance, MEASURED))
        entry = _entry(making, file, number)
        if entry.status != ManifestEntryStatus.DELETED:
            making.data.append((path, place))
        entries.append(entry)
    _add_manifest(making, _DataManifest if number else _OldDataManifest, spec, entries, number)


def _add_deletes(making: _Making, number: int) -> None:
    """Deletes under one spec, which is that of a data file where there are some."""
    chance = making.chance
    spec = chance.choice([place.spec for _, place in making.data] or making.specs)
    entries = [_entry(making, _delete_file(making, spec), number) for _ in range(chance.randint(1, 4))]
    _add_manifest(making, _DeleteManifest, spec, entries, number)
    if making.version == 3 and (vectors := _vectors(making, spec, number)):
        _add_manifest(making, DeleteManifestV3, spec, vectors, number)


def _delete_file(making: _Making, spec: PartitionSpec) -> DataFile:
    chance = making.chance
    inhabited = [place for _, place in making.data if place.spec == spec]
    place = chance.choice(inhabited) if inhabited and chance.random() < 0.8 else _Place(spec, _partition(chance, spec))
    if chance.random() < 0.5:
        ids = chance.choice(KEYS)
        metrics, path = _column_metrics(chance, ids), _new_path(making, "deletes")
        return _file(path, place, DataFileContent.EQUALITY_DELETES, metrics, equality_ids=list(ids))
    here = sorted(path for path, one in making.data if one.key == place.key)
    path = _new_path(making, "deletes")
    kind = chance.choice(("referenced", "bounds", "shared", "shared", "shared, shortened", "no bounds"))
    if not here or (kind.startswith("shared") and len({*here}) < 2):
        kind = "no bounds"
    if kind in ("referenced", "bounds") and chance.random() < 0.05:
        # Readers disagree about a delete that lies elsewhere than the file it names.
        here = [one for one, _ in making.data]
    making.places[path] = place.key
    if kind == "no bounds":
        return _file(path, place, DataFileContent.POSITION_DELETES, {})
    low, high = sorted(chance.sample(here, 2)) if kind.startswith("shared") else [chance.choice(here)] * 2
    if kind == "shared, shortened":
        low, high = low[:-6], high[:-6] + "~"
    referenced = low if kind == "referenced" else None
    bounds = {"lower_bounds": {PATH_ID: low.encode()}, "upper_bounds": {PATH_ID: high.encode()}}
    return _file(path, place, DataFileContent.POSITION_DELETES, bounds, referenced_data_file=referenced)


def _vectors(making: _Making, spec: PartitionSpec, number: int) -> list[ManifestEntry]:
    """Vectors of data files that have none yet; those of one partition lie in one file. Some are removed again."""
    chance, entries = making.chance, []
    files: dict[str, str] = {}
    for path, place in making.data:
        if place.spec != spec or path in making.vectors or chance.random() < 0.5:
            continue
        puffin = files.setdefault(place.key, _new_path(making, "vectors").replace(".parquet", ".puffin"))
        making.places[puffin] = place.key
        at = {"content_offset": 4 + 40 * len(entries), "content_size_in_bytes": 40}
        file = _file(puffin, place, DataFileContent.POSITION_DELETES, {}, referenced_data_file=path, **at)
        file.spec_id = spec.spec_id
        status = ManifestEntryStatus.DELETED if chance.random() < 0.1 else ManifestEntryStatus.ADDED
        if status == ManifestEntryStatus.ADDED:
            making.vectors[path] = puffin
        entries.append(_entry_of(file, status, number, number))
    return entries


def _new_path(making: _Making, kind: str) -> str:
    """A path whose place in the order is random."""
    making.files += 1
    return f"{making.location}/data/{making.chance.randrange(16**6):06x}-{making.files}-{kind}.parquet"


def _partition(chance: random.Random, spec: PartitionSpec) -> tuple[Any, ...]:
    return tuple(
        None
        if isinstance(one.transform, VoidTransform)
        else _value(chance, partition.field_type, null=0.0 if one.source_id == 1 else 0.3)
        for one, partition in zip(spec.fields, spec.partition_type(OLD_SCHEMA).fields, strict=True)
    )


def _value(chance: random.Random, kind: Any, null: float = 0.0) -> Any:
    return None if chance.random() < null else chance.choice(VALUES[str(kind)][:3])


def _column_metrics(chance: random.Random, ids: Iterable[int]) -> dict[str, dict[int, Any]]:
    """Counts and bounds of the columns, some of which are missing."""
    names = ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    metrics: dict[str, dict[int, Any]] = {name: {} for name in names}
    for field_id in ids:
        kind = OLD_SCHEMA.find_type(field_id)
        assert isinstance(kind, PrimitiveType)
        nulls = 0 if field_id == 1 else chance.choice((0, 0, 3, 10))
        metrics["value_counts"][field_id], metrics["null_value_counts"][field_id] = 10, nulls
        if nulls < 10:
            numbers = (one for one in (_value(chance, kind), _value(chance, kind)) if one == one)
            low, *_, high = [*sorted(numbers)] * 2 or (0.0, 0.0)
            # The column was promoted since: files written afterwards have wider bounds.
            wide = LongType() if field_id == 6 and chance.random() < 0.5 else kind
            metrics["lower_bounds"][field_id] = to_bytes(wide, low)
            metrics["upper_bounds"][field_id] = to_bytes(wide, high)
        for name in names:
            if chance.random() < 0.05:
                metrics[name].pop(field_id, None)
    return {name: found for name, found in metrics.items() if chance.random() < 0.93}


# --- manifests --------------------------------------------------------------------------------------------------------


class _AllFields(ManifestWriter):
    """Takes entries with all fields, and writes the name of a position delete's one data file, too."""

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=Schema(*map(_with_referenced_file, self._with_partition(self.version).fields)),
            record_schema=self._with_partition(ENTRIES_OF),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


def _with_referenced_file(entry_field: NestedField) -> NestedField:
    if not isinstance(entry_field.field_type, StructType):
        return entry_field
    referenced = NestedField(143, "referenced_data_file", "string", required=False)
    return entry_field.model_copy(update={"field_type": StructType(*entry_field.field_type.fields, referenced)})


# Format 1 has no sequence numbers.
_OldDataManifest, _DataManifest, _DeleteManifest = (
    type(kind.__name__, (_AllFields, kind), {}) for kind in (DataManifestV1, DataManifestV2, DeleteManifestV2)
)


def _file(path: str, place: _Place, content: DataFileContent, metrics: dict[str, Any], **more: Any) -> DataFile:
    return DataFile.from_args(
        _table_format_version=ENTRIES_OF,
        content=content,
        file_path=path,
        file_format=FileFormat.PUFFIN if "content_offset" in more else FileFormat.PARQUET,
        partition=Record(*place.partition),
        record_count=10,
        file_size_in_bytes=1000,
        spec_id=place.spec.spec_id,
        **metrics,
        **more,
    )


def _entry(making: _Making, file: DataFile, number: int) -> ManifestEntry:
    """The file's entry, new, carried over from an earlier commit or removed; some numbers are explicit."""
    chance = making.chance
    earliest = making.first_number + 1 if file.content != DataFileContent.DATA else 0
    older = chance.randint(min(earliest, number), number)
    luck, status = chance.random() if number else 1.0, ManifestEntryStatus.ADDED
    if luck < 0.2:
        status = ManifestEntryStatus.EXISTING if luck < 0.12 else ManifestEntryStatus.DELETED
    return _entry_of(file, status, number, older if luck < 0.4 else None)  # a rewrite states that of a new one


def _entry_of(file: DataFile, status: ManifestEntryStatus, snapshot_id: int, number: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status, snapshot_id=snapshot_id, sequence_number=number, file_sequence_number=number, data_file=file
    )


def _add_manifest(making: _Making, kind: Any, spec: PartitionSpec, entries: list[ManifestEntry], number: int) -> None:
    path = f"{making.location}/metadata/m{len(making.manifests)}.avro"
    with kind(spec, OLD_SCHEMA, making.io.new_output(path), number, "deflate") as writer:
        for entry in entries:
            writer.add_entry(entry)
    manifest = writer.to_manifest_file()
    live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    explicit = [number if entry.sequence_number is None else entry.sequence_number for entry in live]
    manifest.sequence_number, manifest.min_sequence_number = number, min(explicit, default=number)
    making.manifests.append(manifest)
