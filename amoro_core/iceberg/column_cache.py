"""Columns of data manifests on disk: loading them takes a small part of the time that decoding the manifest takes.

Manifests are immutable, so what was decoded once stays valid. A file that is damaged, or of another version of Arrow,
is removed and its manifest is decoded again. Files of another version of ours have other names, and go in their turn.
The directory may be deleted at any time. Only planning reads it: what is committed is validated against the manifests
themselves.
"""

import hashlib
import json
import os
import secrets
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyiceberg.manifest import ManifestFile

from amoro_core.events import get_logger
from amoro_core.iceberg.entries import PartitionTypes
from amoro_core.iceberg.row_ids import first_row_id_of
from amoro_core.live.columns import SCHEMA, ColumnPart
from amoro_core.live.storing import packed_part, unpacked_part

log = get_logger("amoro.cache")

#: The version of what a file holds, a part of its name; so are the columns.
_LAYOUT = 3
_COLUMNS = str(SCHEMA)
_SUFFIX = ".arrow"
_DIGEST_BYTES = hashlib.sha256().digest_size
#: The part of the limit that is left after eviction, and the age of an unfinished file that nobody writes any more.
_LEFT, _ABANDONED_S = 0.9, 3600.0
#: Manifests with fewer live files are decoded as fast as their file here is opened.
LEAST_FILES = 50


class ColumnCache:
    """A directory with a file for each data manifest that was decoded, the least recently used removed first.

    For several threads of one process. No problem of the directory or of a file is an error: the cache then has less.
    """

    def __init__(self, directory: Path, most_bytes: int, least_files: int = LEAST_FILES) -> None:
        """`most_bytes` limits the size of all files together, `least_files` which manifests are worth a file."""
        self._directory = directory
        self._most_bytes, self._least_files = most_bytes, least_files
        self._lock = threading.Lock()
        self._used: int | None = None  # bytes, once the directory was read
        self._has_warned = False

    def find(
        self, table_uuid: str, listed: ManifestFile, types: PartitionTypes, unusable: list[str]
    ) -> ColumnPart | None:
        """The live files of the manifest as `listed` describes it; None where they are not in the cache.

        A file that is there and can't be used is added to `unusable`, with the reason.
        """
        if _live_files(listed, self._least_files) < self._least_files:
            return None
        key = _key(table_uuid, listed, types)
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            if os.path.lexists(path):
                unusable.append(f"{path}: {error.strerror}")
            else:
                self._warn(error)
            return None
        found = _unpacked(key, content)
        if found is None or found.batch.num_rows != _live_files(listed, found.batch.num_rows):
            unusable.append(f"{path}: it is damaged, or of another version, and was removed")
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return found

    def keep(self, table_uuid: str, listed: ManifestFile, types: PartitionTypes, part: ColumnPart) -> None:
        """Write the live files of a manifest that was decoded and found to be consistent."""
        if part.batch.num_rows < self._least_files:
            return
        key = _key(table_uuid, listed, types)
        content = _packed(key, part)
        if len(content) > self._most_bytes * _LEFT:
            return
        try:
            self._make_room(len(content))
            self._write(self._path(key), content)
        except IsADirectoryError:
            return  # told when the file was looked for
        except OSError as error:
            self._warn(error)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}{_SUFFIX}"

    def _write(self, path: Path, content: bytes) -> None:
        """The file appears whole or not at all."""
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
                target.write(content)
            unfinished.replace(path)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()
            raise

    def _make_room(self, size: int) -> None:
        """Count further bytes, and remove the least recently used files where all together exceed the limit."""
        with self._lock:
            if self._used is None:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._used = sum(bytes_ for _, bytes_, _ in self._files())
            self._used += size
            if self._used <= self._most_bytes:
                return
            files = sorted(self._files())
            self._used = size + sum(bytes_ for _, bytes_, _ in files)
            for _, bytes_, path in files:
                if self._used <= self._most_bytes * _LEFT:
                    break
                with suppress(FileNotFoundError):
                    path.unlink()
                self._used -= bytes_

    def _files(self) -> list[tuple[int, int, Path]]:
        """The time of the last use, the size and the path of each file of any version; abandoned ones are removed."""
        found = []
        for path in self._directory.iterdir():
            with suppress(FileNotFoundError):  # removed meanwhile
                status = path.lstat()
                if not stat.S_ISREG(status.st_mode):
                    continue
                if path.name.startswith("."):
                    if status.st_mtime < time.time() - _ABANDONED_S:
                        path.unlink()
                elif path.suffix == _SUFFIX:
                    found.append((status.st_mtime_ns, status.st_size, path))
        return found

    def _warn(self, error: OSError) -> None:
        """Once: the same problem of the directory would be told for each manifest."""
        if not self._has_warned:
            self._has_warned = True
            log.warning("cache.unusable", directory=str(self._directory), why=str(error))


def _key(table_uuid: str, listed: ManifestFile, types: PartitionTypes) -> str:
    """A name for all that decides what is read from the manifest, inherited and promoted values included."""
    described = (
        _LAYOUT,
        _COLUMNS,
        table_uuid,
        listed.manifest_path,
        listed.manifest_length,
        listed.partition_spec_id,
        listed.sequence_number,
        listed.added_snapshot_id,
        listed.added_files_count,
        listed.existing_files_count,
        first_row_id_of(listed),
        [str(one) for one in types],
    )
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()


def _live_files(listed: ManifestFile, otherwise: int) -> int:
    """The number of live files according to the manifest list; `otherwise` where it does not say."""
    counts = (listed.added_files_count, listed.existing_files_count)
    return otherwise if None in counts else sum(one or 0 for one in counts)


def _packed(key: str, part: ColumnPart) -> bytes:
    """A digest of the key and of what follows: the part."""
    payload = packed_part(part, "lz4")
    return _digest(key, payload) + payload


def _unpacked(key: str, content: bytes) -> ColumnPart | None:
    """What was packed under that key; None for anything else."""
    payload = content[_DIGEST_BYTES:]
    if content[:_DIGEST_BYTES] != _digest(key, payload):
        return None
    try:
        return unpacked_part(payload)
    except (pa.ArrowException, OSError, StopIteration, ValueError, KeyError):
        return None  # of a version of Arrow that this one does not read


def _digest(key: str, payload: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(payload)
    return digest.digest()
