"""What makes a table bad, in place: its metadata file, manifest lists, manifests, data and delete files."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from amoro_core.model.optimizing_config import ENABLED_KEY, OptimizingConfig
from tests.badinput import values
from tests.badinput.values import Chance
from tests.engine import oracle
from tests.engine.parquet_rows import local_path

_OTHER_VALUES: tuple[Callable[[Chance], Any], ...] = (
    lambda chance: None,
    lambda chance: values.odd(chance).encode("utf-8", "replace").decode(),
    lambda chance: chance.choice((-1, 0, 1, 7, 2**31, 2**63, 10**30, -(10**30))),
    lambda chance: chance.choice((0.5, float("nan"), float("inf"), -1e300)),
    lambda chance: chance.choice((True, False)),
    lambda chance: chance.choice(([], {}, [None], [[]], {"": ""}, [{}], "")),
)
_NO_ID = (99, -1)
#: What the keys may not say: of the metadata, of a snapshot, of a field.
_WRONG: dict[str, tuple[Any, ...]] = {
    "format-version": (0, -1, 4, 99, "two"),
    "table-uuid": ("", "no uuid", "00000000-0000-0000-0000-000000000000", 7),
    "location": ("", "relative", "file:///etc", "file:///", "s3://nobody/x", "http://127.0.0.1:9/x", "../x"),
    "last-sequence-number": (-1, 0, 1, 2**63 - 1),
    "last-updated-ms": (-1, 0, 2**62),
    **dict.fromkeys(("current-schema-id", "default-spec-id", "default-sort-order-id"), _NO_ID),
    **dict.fromkeys(("last-column-id", "last-partition-id"), (0, -5)),
    "current-snapshot-id": (1, 2**62, -5),
}
_WRONG_SNAPSHOT: dict[str, tuple[Any, ...]] = {
    "schema-id": _NO_ID,
    "sequence-number": (-1, 0, 2**62),
    "parent-snapshot-id": (17, -1),
    "snapshot-id": (17, -1),
    "timestamp-ms": (-1, 0, 2**62),
    "summary": ({"operation": "nonsense"},),
    "manifest-list": ("file:///etc/passwd", "", "http://127.0.0.1:9/x.avro", "{location}", "{other}"),
}
_WRONG_FIELD: dict[str, tuple[Any, ...]] = {
    "id": (1, 2, 3, 0, -1, 2**31, 99),
    "name": ("id", "", "part", "a.b", "\x00", "\u202e"),
    "type": ("long", "string", "nonsense", "decimal(99,3)", "fixed[-1]", "struct", "float", {}),
    "required": (True, "yes"),
}


def break_metadata(chance: Chance, table: Table) -> str:
    """Write the current metadata file anew with something wrong in it."""
    path = Path(local_path(table.metadata_location))
    text = path.read_text(encoding="utf-8")
    if chance.random() < 0.25:
        bad, how = _broken_text(chance, text.encode())
        path.write_bytes(bad)
        return how
    document = json.loads(text)
    change = chance.choice((*[_said_otherwise] * 3, _replaced, _replaced, _removed, _doubled))
    how = change(chance, document)
    path.write_text(json.dumps(document), encoding="utf-8")
    return how


def _broken_text(chance: Chance, text: bytes) -> tuple[bytes, str]:
    at = chance.randrange(len(text))
    ways = {
        f"truncated at {at}": text[:at],
        "empty": b"",
        "null": b"null",
        "a list": b"[]",
        "HTML": b"<!DOCTYPE html><html><body>" + b"Not found. " * chance.choice((1, 10_000)) + b"</body></html>",
        "no UTF-8": text[:at] + b"\xff\xfe" + text[at:],
        "nested too deep": b'{"a":' * 100_000,
        "zeros": bytes(len(text)),
        "twice": text + text,
    }
    how = chance.choice(list(ways))
    return ways[how], how


def _said_otherwise(chance: Chance, document: dict[str, Any]) -> str:
    snapshot, field = chance.choice(document["snapshots"]), chance.choice(document["schemas"][-1]["fields"])
    said, wrong = chance.choice(((document, _WRONG), (snapshot, _WRONG_SNAPSHOT), (field, _WRONG_FIELD)))
    key = chance.choice(list(wrong))
    value = chance.choice(wrong[key])
    lists = {"{location}": document["location"], "{other}": chance.choice(document["snapshots"])["manifest-list"]}
    said[key] = lists.get(value, value) if isinstance(value, str) else value
    return f"{key} = {said[key]!r}"


def places(value: Any, at: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Every container with each of its keys, and where that stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield value, key, f"{at}/{key}"
        yield from places(each, f"{at}/{key}")


def _replaced(chance: Chance, document: dict[str, Any]) -> str:
    container, key, where = chance.choice(list(places(document)))
    container[key] = chance.choice(_OTHER_VALUES)(chance)
    return f"{where} = {str(container[key])[:200]!r}"


def _removed(chance: Chance, document: dict[str, Any]) -> str:
    container, key, where = chance.choice(list(places(document)))
    del container[key]
    return f"without {where}"


def _doubled(chance: Chance, document: dict[str, Any]) -> str:
    lists = [(container[key], where) for container, key, where in places(document) if isinstance(container[key], list)]
    found, where = chance.choice([(found, where) for found, where in lists if found])
    found.append(chance.choice(found))
    return f"one of {where} twice"


_PARQUET = (
    *("compression-codec", "compression-level", "row-group-size-bytes", "row-group-limit", "page-size-bytes"),
    *("page-row-limit", "dict-size-bytes", "bloom-filter-enabled.column.id", "bloom-filter-fpp.column.id"),
    "bloom-filter-max-bytes",
)
_WRITERS = (
    *(f"write.parquet.{key}" for key in _PARQUET),
    *(f"write.metadata.{key}" for key in ("metrics.default", "metrics.column.id", "path")),
    *(f"write.object-storage.{key}" for key in ("enabled", "partitioned-paths")),
    *(
        f"commit.{key}"
        for key in ("manifest.target-size-bytes", "manifest.min-count-to-merge", "manifest-merge.enabled")
    ),
    *("write.format.default", "write.delete.format.default", "write.data.path", "write.wap.enabled", "py-io-impl"),
    *("write.metadata.metrics.max-inferred-column-defaults", "write.py-location-provider.impl", "encryption.key-id"),
    *("self-optimizing.commit.manifest-merge-budget", "schema.name-mapping.default"),
)
KEYS = (ENABLED_KEY, *(item.metadata["key"] for item in fields(OptimizingConfig) if "key" in item.metadata), *_WRITERS)
_VALUES: tuple[Callable[[Chance], str], ...] = (
    values.integer,
    values.duration,
    values.size,
    values.odd,
    values.path,
    lambda chance: chance.choice(("", " ", "null", "None", "yes", "TRUE ", "0", "-0", "1e400", "9" * 400, "[]", "{}")),
    lambda chance: chance.choice(
        ("id = 'x", "id >", "nope = 1", "id = id", "(" * 2_000, "id in ()", "not " * 500 + "x")
    ),
    lambda chance: chance.choice(("file:///etc", "s3://nobody/x", "../../x", "relative/path", "file://host/x", "://")),
    lambda chance: chance.choice(('[{"names": 1}]', '[{"field-id": "x", "names": ["id"]}]', "[" * 3_000, '{"a":')),
)


def break_properties(chance: Chance, table: Table) -> str:
    """Set one property or two to something that they can't be."""
    wrong = {key: _encoded(chance.choice(_VALUES)(chance)) for key in chance.sample(KEYS, chance.choice((1, 1, 2)))}
    # Past pyiceberg, which refuses some of them; other engines do not.
    path = Path(local_path(table.metadata_location))
    document = json.loads(path.read_text(encoding="utf-8"))
    document["properties"] |= wrong
    path.write_text(json.dumps(document), encoding="utf-8")
    return repr(wrong)


def _encoded(text: str) -> str:
    """What can stand in a table's metadata, which is UTF-8."""
    return text.encode("utf-8", "replace").decode()


Records = list[dict[str, Any]]
_PATHS = ("", "/etc/passwd", "file:///etc/passwd", "../x.parquet", "s3://nobody/x.parquet", "file:///", "CSV")
#: Other values by type; where the schema cannot hold one, another is taken.
_OTHERS: tuple[Callable[[Chance], Any], ...] = (
    lambda chance: None,
    lambda chance: chance.choice((-1, 0, 1, 2, 3, 7, 99, 2**31 - 1, -(2**31))),
    lambda chance: chance.choice((2**62, -(2**62), 2**63 - 1)),
    lambda chance: values.odd(chance).encode("utf-8", "replace").decode(),
    lambda chance: chance.choice(_PATHS),
    lambda chance: chance.choice((b"", b"\xff" * 9, b"\x00")),
    lambda chance: chance.choice(([], {}, True, False)),
)


def break_manifests(chance: Chance, table: Table) -> str:
    """Make the head's manifest list, or one of its manifests, bad."""
    head = table.refresh().current_snapshot()
    assert head is not None
    list_path = Path(local_path(head.manifest_list))
    manifests = [Path(local_path(manifest.manifest_path)) for manifest in head.manifests(table.io)]
    path = chance.choice((list_path, *manifests, *manifests))
    what = "the manifest list" if path == list_path else f"manifest {manifests.index(path)}"
    if chance.random() < 0.35:
        return f"{what}: {_broken_manifest(chance, path, chance.choice(manifests))}"
    how = _said_wrong(chance, path)
    if path != list_path and chance.random() < 0.7:
        _tell_length(table, path)
        how += ", its length as it is"
    return f"{what}: {how}"


def _turned(chance: Chance, content: bytes, times: int, last: int | None = None) -> bytes:
    """The bytes with so many bits turned, among the last so many bytes."""
    done = bytearray(content)
    for _ in range(times):
        done[-chance.randrange(1, min(len(done), last or len(done)) + 1)] ^= 1 << chance.randrange(8)
    return bytes(done)


def _replaced_file(chance: Chance, path: Path, contents: dict[str, bytes | str]) -> str:
    """Write one of the contents, and say which; texts are one of the ways in which a file is none."""
    away = path.with_suffix(".away")
    how = chance.choice(list(contents))
    if isinstance(content := contents[how], bytes):
        path.write_bytes(content)
        return how
    path.rename(away)
    match content:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "":
            away.unlink()
        case target:
            path.symlink_to(target)
    return how


def _broken_manifest(chance: Chance, path: Path, other: Path) -> str:
    content = path.read_bytes()
    at = chance.randrange(len(content))
    ways: dict[str, bytes | str] = {
        f"truncated at {at}": content[:at],
        "empty": b"",
        "bits turned": _turned(chance, content, chance.choice((1, 1, 20))),
        "zeros": bytes(len(content)),
        "more at its end": content + chance.randbytes(40),
        "gone": "",
        "a directory": "directory",
        "JSON": b'{"a": 1}',
        "another one": other.read_bytes(),
    }
    return _replaced_file(chance, path, ways)


def _said_wrong(chance: Chance, path: Path) -> str:
    told: list[str] = []

    def change(records: Records) -> None:
        way = chance.random()
        if way < 0.1 and len(records) > 0:
            records.append(chance.choice(records))
            told.append("an entry twice")
        elif way < 0.15:
            records.clear()
            told.append("no entries")
        else:
            container, key, where = chance.choice([place for record in records for place in places(record)])
            container[key] = chance.choice(_OTHERS)(chance)
            told.append(f"{where} = {str(container[key])[:200]!r}")

    for _ in range(50):
        told.clear()
        try:
            _said_anew(path, change)
            return told[0]
        except Exception as error:  # the schema does not hold this value: another one
            told.append(f"{type(error).__name__}: {error}")
    raise AssertionError(f"no value was found that the schema holds; at last: {told}")


def _said_anew(path: Path, change: Callable[[Records], None]) -> None:
    """Write the Avro file anew with other records; it stays as it is where its schema cannot hold them."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, metadata, codec = reader.writer_schema, reader.metadata, reader.codec
        records: Records = [dict(record) for record in reader]
    change(records)
    written = io.BytesIO()
    own = {key: value for key, value in metadata.items() if not key.startswith("avro.")}
    fastavro.writer(written, schema, records, codec=codec, metadata=own)
    path.write_bytes(written.getvalue())


def _tell_length(table: Table, path: Path) -> None:
    """Have every manifest list say how long the manifest is now."""

    def change(records: Records) -> None:
        for record in records:
            if Path(local_path(record["manifest_path"])) == path:
                record["manifest_length"] = path.stat().st_size

    for snapshot in table.metadata.snapshots:
        _said_anew(Path(local_path(snapshot.manifest_list)), change)


def edit_entry(table: Table, path: str, **changes: Any) -> None:
    """Have the head's manifests say something else of one file."""
    head = table.refresh().current_snapshot()
    assert head is not None

    def change(records: Records) -> None:
        for record in records:
            if record["data_file"]["file_path"] == path:
                record["data_file"].update(changes)

    for manifest in head.manifests(table.io):
        place = Path(local_path(manifest.manifest_path))
        _said_anew(place, change)
        _tell_length(table, place)


def break_files(chance: Chance, table: Table) -> str:
    """Make one data or delete file bad; in half of the cases its manifest knows of the new size."""
    file = chance.choice(oracle.live_files(table))
    path = Path(local_path(file.path))
    ways: list[Callable[[Chance, Path], str]] = [_broken_bytes, _broken_bytes, _no_file]
    ways += [_other_data, _other_data] if file.content == oracle.DATA else [_other_deletes, _other_deletes]
    how = chance.choice(ways)(chance, path)
    if path.is_file() and chance.random() < 0.5:
        edit_entry(table, file.path, file_size_in_bytes=path.stat().st_size)
        how += ", its size as it is"
    return f"{('data', 'position delete', 'equality delete')[file.content]} file: {how}"


def break_data_file(chance: Chance, table: Table) -> str:
    """Make the bytes of one data file bad, of which the manifest knows the size, and name the file."""
    file = chance.choice([one for one in oracle.live_files(table) if one.content == oracle.DATA])
    path = Path(local_path(file.path))
    how = chance.choice((_broken_bytes, _cut_or_longer, _other_data))(chance, path)
    edit_entry(table, file.path, file_size_in_bytes=path.stat().st_size)
    return f"{path.name}: {how}"


def _cut_or_longer(chance: Chance, path: Path) -> str:
    """Bytes go or come in the middle, as often as not in the pages."""
    bytes_ = path.read_bytes()
    at, length = chance.randrange(chance.choice((len(bytes_), len(bytes_) // 2))), chance.choice((1, 1, 4, 60))
    if chance.random() < 0.5:
        path.write_bytes(bytes_[:at] + bytes_[at + length :])
        return f"{length} bytes cut out at {at}"
    path.write_bytes(bytes_[:at] + chance.randbytes(length) + bytes_[at:])
    return f"{length} bytes put in at {at}"


def _broken_bytes(chance: Chance, path: Path) -> str:
    content = path.read_bytes()
    at = chance.randrange(len(content))
    ways: dict[str, bytes | str] = {
        f"truncated at {at}": content[:at],
        "empty": b"",
        "bits turned": _turned(chance, content, chance.choice((1, 5, 50))),
        "bits of the footer turned": _turned(chance, content, chance.choice((1, 5)), 400),
        "zeros": bytes(len(content)),
        "text": b"id,part\n1,a\n",
        "a footer alone": b"PAR1" + content[-8:],
        "an absurd length of the footer": content[:-8] + b"\xff\xff\xff\x7fPAR1",
        "more at its end": content + chance.randbytes(60),
    }
    return _replaced_file(chance, path, ways)


def _no_file(chance: Chance, path: Path) -> str:
    ways: dict[str, bytes | str] = {
        "gone": "",
        "a directory": "directory",
        "a pipe that nobody writes to": "pipe",
        "a link to nothing": "/nowhere/at/all",
        "a link to itself": str(path),
        "a link to a file of the system": "/etc/passwd",
        "a device": "/dev/zero",
    }
    return _replaced_file(chance, path, ways)


def _other_data(chance: Chance, path: Path) -> str:
    rows = chance.choice((0, 1, 4, 9))
    numbers, texts = list(range(rows)), ["a"] * rows
    fields = {
        "text for numbers": [("id", pa.string(), 1), ("part", pa.string(), 2), ("value", pa.string(), 3)],
        "numbers for text": [("id", pa.int64(), 1), ("part", pa.int64(), 2), ("value", pa.int64(), 3)],
        "no field ids": [("id", pa.int64(), None), ("part", pa.string(), None)],
        "two columns with one field id": [("id", pa.int64(), 1), ("other", pa.int64(), 1), ("part", pa.string(), 2)],
        "a struct for a number": [("id", pa.struct([("x", pa.int64())]), 1), ("part", pa.string(), 2)],
        "a list for text": [("id", pa.int64(), 1), ("part", pa.list_(pa.string()), 2)],
        "no columns of the table": [("x", pa.int64(), 77)],
        "other rows": [("id", pa.int64(), 1), ("part", pa.string(), 2), ("value", pa.string(), 3)],
    }
    how = chance.choice(list(fields))
    values = {pa.int64(): numbers, pa.string(): texts}
    columns = {name: pa.array(values.get(kind, [None] * rows), kind) for name, kind, _ in fields[how]}
    _write(path, columns, {name: field_id for name, _, field_id in fields[how]})
    return f"{how}, {rows} rows"


def _other_deletes(chance: Chance, path: Path) -> str:
    known = pq.read_table(path)
    rows = known.num_rows
    ways: dict[str, dict[str, pa.Array]] = {
        "no columns that deletes have": {"x": pa.array([1] * rows)},
        "no rows": {name: known[name].combine_chunks()[:0] for name in known.column_names},
        "one more row": {
            name: pa.concat_arrays([known[name].combine_chunks(), known[name].combine_chunks()[:1]])
            for name in known.column_names
        },
        "nulls": {name: pa.nulls(rows, known[name].type) for name in known.column_names},
        "text throughout": {name: pa.array(["x"] * rows) for name in known.column_names},
    }
    if "pos" in known.column_names:
        paths = known["file_path"].combine_chunks()
        ways |= {
            f"positions {position}": {"file_path": paths, "pos": pa.array([position] * rows, pa.int64())}
            for position in (-1, 2**40, 2**63 - 1)
        }
        ways["a file that is not of the table"] = {
            "file_path": pa.array(["file:///etc/passwd"] * rows),
            "pos": known["pos"].combine_chunks(),
        }
    how = chance.choice(list(ways))
    ids = {field.name: (field.metadata or {}).get(b"PARQUET:field_id") for field in known.schema}
    _write(path, ways[how], {name: int(ids[name]) if ids.get(name) else None for name in ways[how]})
    return how


def _write(path: Path, columns: dict[str, pa.Array], ids: dict[str, int | None]) -> None:
    fields = [
        pa.field(name, array.type, metadata=None if ids[name] is None else {"PARQUET:field_id": str(ids[name])})
        for name, array in columns.items()
    ]
    pq.write_table(pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields)), path)
