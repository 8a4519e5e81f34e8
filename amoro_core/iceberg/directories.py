"""Catalogs that are directories of a file system, like Hadoop's: read only, since a file system can't compare and set.

A directory with a `metadata` directory that contains metadata files is a table, any other a namespace. The current
metadata file has the version in `version-hint.text`, or a later one that exists already (Iceberg's table specification,
appendix on file-system tables).
"""

import re
from collections.abc import Mapping

from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from amoro_core.iceberg.guards import confined

_METADATA = re.compile(r"(?:v(\d+)|(\d+)-[0-9a-fA-F-]+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_HINT = "version-hint.text"


class DirectoryCatalog(NoopCatalog):
    """Tables below a warehouse; methods that would write are not implemented."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._warehouse = properties["warehouse"].rstrip("/")
        self._io = PyArrowFileIO({key: value for key, value in properties.items() if not key.endswith("impl")})

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """The namespaces directly below one. Raises NoSuchNamespaceError."""
        parent = Catalog.identifier_to_tuple(namespace)
        return [(*parent, name) for name in self._directories(parent) if not self._versions((*parent, name))]

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables directly below a namespace. Raises NoSuchNamespaceError."""
        parent = Catalog.identifier_to_tuple(namespace)
        return [(*parent, name) for name in self._directories(parent) if self._versions((*parent, name))]

    def load_table(self, identifier: str | Identifier) -> Table:
        """Raises NoSuchTableError."""
        parts = Catalog.identifier_to_tuple(identifier)
        versions = self._versions(parts)
        if not versions:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(parts)}")
        # A writer creates the metadata file before it updates the hint: the newest file counts, whatever the hint says.
        location = f"{self._place(parts)}/metadata/{versions[max(versions)]}"
        metadata = FromInputFile.table_metadata(confined(self._io).new_input(location))
        return Table(
            identifier=parts,
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    def close(self) -> None:
        """Does nothing: nothing is held open."""

    def _versions(self, parts: Identifier) -> Mapping[int, str]:
        """The metadata files of what may be a table, by version."""
        found = {}
        for entry in self._entries(f"{self._place(parts)}/metadata") or ():
            match = _METADATA.fullmatch(entry.base_name)
            if match and entry.type == FileType.File:
                found[int(match[1] or match[2])] = entry.base_name
        return found

    def _directories(self, parts: Identifier) -> list[str]:
        entries = self._entries(self._place(parts))
        if entries is None:
            raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(parts) or self._warehouse}")
        names = [entry.base_name for entry in entries if entry.type == FileType.Directory]
        return sorted(name for name in names if not name.startswith((".", "_")))

    def _entries(self, location: str) -> list[FileInfo] | None:
        """The entries of a directory; None when it does not exist."""
        scheme, netloc, path = self._io.parse_location(location, self.properties)
        files = self._io.fs_by_scheme(scheme, netloc)
        try:
            return list(files.get_file_info(FileSelector(path, recursive=False)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _place(self, parts: Identifier) -> str:
        if any(part in ("", ".", "..") or "/" in part for part in parts):
            raise NoSuchTableError(f"{parts} is not a valid directory name")
        return "/".join((self._warehouse, *parts))
