"""Parses query files and Spark's event logs for scans of a table; the coordinator never reads them."""

import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from amoro_core.errors import InvalidArgument
from amoro_core.model.scan_stats import ScanRecord, scans_of_event_log, scans_of_queries, summed
from amoro_core.protocol import admin_pb2 as pb

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient


#: Bytes of a file of queries at most.
MAX_QUERIES_BYTES = 64 * 1024 * 1024
#: Bytes of all event logs together at most, uncompressed.
MAX_LOG_BYTES = 64 * 1024**3
#: Bytes of one line at most.
MAX_LINE_BYTES = 64 * 1024 * 1024
#: Files of a directory at most.
MAX_FILES = 10_000
#: Sets of filters and days of logs at most.
MAX_SCANS = 50_000
_ZSTD = (".zstd", ".zst")
#: A part of a log that Spark rolls; the name has the application.
_ROLLED = re.compile(r"(?P<source>events_\d+_.+?)(?:\.compact)?(?:\.zstd|\.zst)?(?:\.compact)?")
#: What other codecs of Spark call their files.
_OTHERS = (".lz4", ".lzf", ".snappy", ".gz")


def learn_from(
    client: "AdminClient", table: str, spark_event_log: Path | None, queries: Path | None
) -> "pb.LearnedScans":
    """Send the scans of one of the two to the coordinator. Raises InvalidArgument, with file and line."""
    if (spark_event_log is None) == (queries is None):
        raise InvalidArgument(
            "Name either an event log of Spark or a file of queries", hint="One of --spark-event-log and --queries."
        )
    if spark_event_log is not None:
        table = client.GetTable(pb.GetTableRequest(table=table)).table
        records = scans_in_event_logs(spark_event_log, table)
    elif queries is not None:
        with _opened(queries) as opened:
            records = _bounded(scans_of_queries(_Lines(queries, opened, MAX_QUERIES_BYTES), str(queries)), queries)
    scans = [
        pb.ToldScan(
            day=record.day.isoformat() if record.day else "",
            filters=[pb.ScanFilter(column=item.column, operator=item.operator.value) for item in record.filters],
            scans=record.scans,
            place=record.place,
            source=record.source,
        )
        for record in records
    ]
    return client.LearnScans(pb.LearnScansRequest(table=table, scans=scans))


def scans_in_event_logs(place: Path, table: str) -> tuple[ScanRecord, ...]:
    """The scans of the table in Spark's event logs: a file, or all in a directory and below.

    `table` is the full name, catalog first. Raises InvalidArgument, with file and line.
    """
    name = table.partition(".")[2]
    files = _files(place)
    if not files:
        raise InvalidArgument(f"{place} has no event logs", hint="Name the directory of spark.eventLog.dir.")

    def every() -> Iterator[ScanRecord]:
        room = MAX_LOG_BYTES
        for file in files:
            with _opened(file) as opened:
                lines = _Lines(file, opened, room)
                rolled = _ROLLED.fullmatch(file.name)
                yield from scans_of_event_log(lines, name, str(file), rolled["source"] if rolled else "")
                room -= lines.bytes

    return _bounded(every(), place)


class _Lines:
    """The lines of a file with their ends; `bytes` is what was read so far."""

    def __init__(self, file: Path, opened: BinaryIO, most: int) -> None:
        self.bytes = 0
        self._file = file
        self._opened = opened
        self._most = most

    def __iter__(self) -> Iterator[str]:
        number = 0
        while line := self._line():
            number += 1
            self.bytes += len(line)
            if len(line) > MAX_LINE_BYTES:
                raise InvalidArgument(
                    f"{self._file}, line {number} has more than {MAX_LINE_BYTES:,} bytes", hint="Check the file."
                )
            if self.bytes > self._most:
                raise InvalidArgument(
                    f"{self._file}, line {number}: more than {self._most:,} bytes can't be read at once",
                    hint="Learn from fewer files, or a shorter one, at once.",
                )
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise InvalidArgument(
                    f"{self._file}, line {number} is not UTF-8", hint="Name files of text, or compressed by zstd."
                ) from error

    def _line(self) -> bytes:
        try:
            return self._opened.readline(MAX_LINE_BYTES + 1)
        except OSError as error:
            if self._file.suffix in _ZSTD and "Truncated" in str(error):
                return b""  # of an application that runs
            raise _unreadable(self._file, error) from error


def _bounded(scans: Iterator[ScanRecord], place: Path) -> tuple[ScanRecord, ...]:
    """The scans, summed while they come, so that a long log takes little memory."""
    records: tuple[ScanRecord, ...] = ()
    part: list[ScanRecord] = []
    for scan in scans:
        part.append(scan)
        if len(part) >= MAX_SCANS:
            records, part = _summed(records, part, place), []
    return _summed(records, part, place)


def _summed(earlier: Sequence[ScanRecord], part: Sequence[ScanRecord], place: Path) -> tuple[ScanRecord, ...]:
    records = summed([*earlier, *part])
    if len(records) > MAX_SCANS:
        raise InvalidArgument(
            f"{place} has more than {MAX_SCANS:,} different sets of filters and days",
            hint="Learn from fewer files, or a shorter one, at once.",
        )
    return records


def _files(place: Path) -> list[Path]:
    """The file, or those of the directory that are not hidden, in order."""
    if not place.is_dir():
        return [place]
    files: list[Path] = []

    def stop(error: OSError) -> None:
        raise _unreadable(place, error) from error

    for folder, folders, names in os.walk(place, onerror=stop):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [Path(folder, name) for name in sorted(names) if not name.startswith((".", "appstatus_"))]
        if len(files) > MAX_FILES:
            raise InvalidArgument(f"{place} has more than {MAX_FILES:,} files", hint="Name a directory with fewer.")
    return files


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if file.suffix in _OTHERS:
        raise InvalidArgument(
            f"{file} is compressed in a way that is not read here",
            hint="Decompress it, or write logs with spark.eventLog.compression.codec=zstd.",
        )
    try:
        opened = _decompressed(file) if file.suffix in _ZSTD else file.open("rb")
    except OSError as error:
        raise _unreadable(file, error) from error
    with opened:
        yield opened


def _decompressed(file: Path) -> BinaryIO:
    import pyarrow as pa  # only where a log is compressed: it takes a while to load

    return io.BufferedReader(pa.input_stream(str(file), compression="zstd"))


def _unreadable(file: Path, error: OSError) -> InvalidArgument:
    return InvalidArgument(
        f"{file} can't be read: {error.strerror or error}", hint="Check its name and rights, and that it is whole."
    )
