"""The guard's own reader of manifests and manifest lists: fields by id, each file whole or not at all."""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from pyiceberg.io import FileIO

from amoro_core.errors import AmoroError, CatalogUnavailable, DataFileMissing, UnreadableFile
from amoro_core.iceberg.saying import said


def records(file_io: FileIO, path: str, what: str, wanted: set[int], length: int | None = None) -> Iterator[Any]:
    """The records of an Avro file: the wanted fields by id, nested ones flattened."""
    import fastavro  # slow to load, and few commands delete files

    try:
        with file_io.new_input(path).open() as stream:
            data = stream.read()
        if length is not None and len(data) != length:
            raise ValueError(f"it has {len(data)} bytes, and its list says {length}")
        source = io.BytesIO(data)
        written = json.loads(fastavro.block_reader(source).metadata["avro.schema"])
        chosen, read = _chosen(written, wanted)
        source.seek(0)
        yield from map(read, fastavro.reader(source, reader_schema=chosen))
    except AmoroError:
        raise
    except FileNotFoundError as error:
        raise DataFileMissing(f"the {what} {path} does not exist") from error
    except OSError as error:
        raise CatalogUnavailable(f"the {what} {path} can't be read: {said(error)}") from error
    except Exception as error:  # whatever a decoder raises means a broken file
        raise UnreadableFile(f"the {what} {path} can't be read: {said(error)}") from error


def _chosen(written: Any, wanted: set[int]) -> tuple[Any, Callable[[Any], dict[int, Any]]]:
    """The schema with the wanted fields alone, and a function that maps its records to values by field id."""
    fields: list[Any] = []
    plain: list[tuple[str, int]] = []
    inner: list[tuple[str, Callable[[Any], dict[int, Any]]]] = []
    for field in written["fields"]:
        if field.get("field-id") not in wanted:
            continue
        kind = field["type"]
        if isinstance(kind, dict) and kind.get("type") == "record":
            narrowed, read = _chosen(kind, wanted)
            fields.append({"name": field["name"], "type": narrowed})
            inner.append((field["name"], read))
        else:
            fields.append({"name": field["name"], "type": kind})
            plain.append((field["name"], field["field-id"]))

    def values(record: Any) -> dict[int, Any]:
        made = {number: record[name] for name, number in plain}
        for name, read in inner:
            made |= read(record[name])
        return made

    return {**written, "fields": fields}, values
