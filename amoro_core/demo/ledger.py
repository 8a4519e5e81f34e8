"""The ledger of rows that the table must hold: a checksum of every row, kept by the writer."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import pyarrow as pa

from amoro_core.demo.flights import SCHEMA
from amoro_core.records import record

_MODULUS = 1 << 64


@record
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

    def keys(self) -> list[int]:
        """All live keys, in the order of their first appearance."""
        return list(self._rows)

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
