"""What a commit adds and removes, for its snapshot's summary, as Java counts it."""

from pyiceberg.manifest import DataFile as EntryFile
from pyiceberg.manifest import FileFormat as EntryFormat
from pyiceberg.table.snapshots import UpdateMetrics

from amoro_core.iceberg.entries import identity_of


class ChangeCounts(UpdateMetrics):
    """The counts of pyiceberg, and those of deletion vectors, whose bytes are those of their part of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.added_vectors = 0
        self.removed_vectors = 0

    def add_file(self, data_file: EntryFile) -> None:
        """Count a new file."""
        super().add_file(data_file)
        if data_file.file_format == EntryFormat.PUFFIN:
            self.added_vectors += 1
            self.added_pos_delete_files -= 1
            self.added_file_size -= data_file.file_size_in_bytes - identity_of(data_file).size

    def remove_file(self, data_file: EntryFile) -> None:
        """Count a file that goes."""
        super().remove_file(data_file)
        if data_file.file_format == EntryFormat.PUFFIN:
            self.removed_vectors += 1
            self.removed_pos_delete_files -= 1
            self.removed_file_size -= data_file.file_size_in_bytes - identity_of(data_file).size

    def to_dict(self) -> dict[str, str]:
        """The entries of the summary that are not 0."""
        counts = {"added-dvs": self.added_vectors, "removed-dvs": self.removed_vectors}
        return {**super().to_dict(), **{name: str(count) for name, count in counts.items() if count}}
