"""Partitions of a table by their paths."""

from pyiceberg.table.metadata import TableMetadata

from amoro_core.files.partitions import path_of_values
from amoro_core.iceberg.entries import PartitionTypes, is_unpartitioned, partition_types
from amoro_core.model.plans import PartitionKey


class PartitionPaths:
    """A table's partitions as Iceberg writes them in paths. The types of a spec's fields are looked for once."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._types: dict[int, PartitionTypes] = {}

    def path_of(self, key: PartitionKey) -> str:
        """The partition's path, "" when unpartitioned."""
        spec = self._metadata.specs()[key.spec_id]
        if is_unpartitioned(spec):
            return ""
        if key.spec_id not in self._types:
            self._types[key.spec_id] = partition_types(self._metadata, spec)
        return path_of_values(spec, self._types[key.spec_id], key.partition)
