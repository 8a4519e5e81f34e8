"""What of a task's files is copied instead of decoded, and why the rest is not."""

from collections import Counter
from contextlib import ExitStack

from pyiceberg.schema import Schema

from amoro_core.errors import UnreadableFile
from amoro_core.files.copy_bounds import ComparedColumn, compared_columns, require_told
from amoro_core.files.copy_source import CopySource, FooterSchema, NotCopied, Read, open_source
from amoro_core.files.io import reading_file
from amoro_core.files.options import WriterOptions
from amoro_core.model.copied_files import is_copied
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.rewrite import CopyRule
from amoro_optimizer.rewrite.reading import WatchedAccess

_MIB = 1 << 20
_MOST_REASONS = 20  # that a result tells: of broken files each may have its own


class Sources:
    """Opens files of a task as sources of copies, as the rule allows."""

    def __init__(self, access: WatchedAccess, rule: CopyRule, options: WriterOptions, schema: Schema) -> None:
        self._access = access
        self._rule = rule
        self._options = options
        self._table = schema
        self._schema: FooterSchema | None = None  # of the file that was opened last
        self._compared: tuple[ComparedColumn, ...] = ()  # its columns

    def open(self, data: DataFile, content: bytes | None, closing: ExitStack) -> CopySource:
        """The file as a source, from its content if that was fetched; a stream is left to `closing`.

        Raises NotCopied with the reason, UnreadableFile for another number of rows than the manifest's,
        DataFileMissing.
        """
        if data.file_format is not FileFormat.PARQUET:
            raise NotCopied(f"its format is {data.file_format}")
        rule, limit = self._rule, self._options.row_group_rows
        # Without the file's own size: files are counted by their reasons.
        small = f"its row groups are smaller than {rule.min_row_group_bytes / _MIB:.3g} MiB on average"
        if data.record_count and rule.is_coarse(data.size_bytes, data.record_count, 1, limit):
            raise NotCopied(small)
        source = open_source(*self._reader(data, content, closing), content, self._schema)
        if source.schema is not self._schema:
            self._schema, self._compared = source.schema, compared_columns(source.schema, self._table)
        rows = source.rows
        if sum(rows) != data.record_count:
            raise UnreadableFile(f"{data.path} has {sum(rows)} rows, but the manifest says {data.record_count}")
        groups = sum(count > 0 for count in rows)
        if groups and rule.is_coarse(data.size_bytes, data.record_count, groups, limit):
            raise NotCopied(small)
        # Of a file into which not all row groups of another were copied, the bounds are those of the other.
        require_told(source, self._compared, self._table, data.metrics, are_reached=not is_copied(data.path))
        return source

    def _reader(self, data: DataFile, content: bytes | None, closing: ExitStack) -> tuple[Read, int]:
        if content is not None:
            return (lambda at, length: content[at : at + length]), len(content)
        stream = self._access.open_stream(data.path)
        closing.callback(stream.close)

        def read(at: int, length: int) -> bytes:
            with reading_file(data.path):
                stream.seek(at)
                return stream.read(length)

        return read, data.size_bytes


class Account:
    """How many files of a task were copied, and why the others were not."""

    def __init__(self) -> None:
        self.files_copied = 0
        self._reasons: Counter[str] = Counter()

    def add(self, reasons: list[str]) -> None:
        """Count a file: copied if there is no reason against it."""
        if reasons:
            self._reasons[reasons[0]] += 1
        else:
            self.files_copied += 1

    @property
    def encoded_because(self) -> str:
        """The commonest reason; empty when every file was copied."""
        return next(iter(self.encoded_files), "")

    @property
    def encoded_files(self) -> dict[str, int]:
        """How many files were not copied for each of the commonest reasons, most files first."""
        return dict(self._reasons.most_common(_MOST_REASONS))
