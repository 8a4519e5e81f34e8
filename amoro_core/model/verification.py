"""Results of comparing the rows of snapshots."""

from dataclasses import dataclass

_MODULUS = 2**64


@dataclass(frozen=True, slots=True)
class RowsDigest:
    """A digest of a multiset of rows: their number, and two sums of their hashes modulo 2^64; order does not matter."""

    rows: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: "RowsDigest") -> "RowsDigest":
        """The digest of both multisets together."""
        return RowsDigest(
            self.rows + other.rows, (self.first + other.first) % _MODULUS, (self.second + other.second) % _MODULUS
        )

    @property
    def checksum(self) -> str:
        """Both sums as 32 hexadecimal digits."""
        return f"{self.first:016x}{self.second:016x}"


@dataclass(frozen=True, slots=True)
class Span:
    """Two snapshots whose rows must be the same, and the processes that committed between them."""

    before: int
    after: int
    process_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComparisonSelection:
    """The comparisons to make. `note` says why there are none."""

    snapshot_id: int  # whose files are checked
    spans: tuple[Span, ...]
    others: tuple[int, ...] = ()  # snapshots of other writers in between, which changed rows by intent
    note: str = ""


@dataclass(frozen=True, slots=True)
class ComparedPartition:
    """One partition before and after; only data files that are not in both with the same deletes."""

    partition: str  # its path, "" when unpartitioned
    spec_id: int
    files_before: int
    files_after: int
    before: RowsDigest
    after: RowsDigest

    @property
    def is_equal(self) -> bool:
        """Whether both sides hold the same multiset of rows."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows of two snapshots."""

    span: Span
    files_in_both: int
    partitions: tuple[ComparedPartition, ...]
    disputed_deletes: int = 0  # equality deletes on the previous files that Iceberg's Java readers pass over

    @property
    def is_equal(self) -> bool:
        return all(partition.is_equal for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Verification:
    """Every comparison, and what is wrong with the files of the snapshot that was checked."""

    selection: ComparisonSelection
    comparisons: tuple[Comparison, ...]
    files: int  # live ones, including deletes
    dangling_deletes: int
    problems: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether every comparison is equal, and there is no problem."""
        return not self.problems and all(comparison.is_equal for comparison in self.comparisons)
