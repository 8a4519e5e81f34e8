"""Mutations of manifest lists and manifests, in place: of their bytes and of what they say."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.table import Table

from tests.badinput import values
from tests.badinput.values import Chance
from tests.engine.parquet_rows import local_path

Records = list[dict[str, Any]]

#: Other values by type; where the schema cannot hold one, another is taken.
_OTHERS: tuple[Callable[[Chance], Any], ...] = (
    lambda chance: None,
    lambda chance: chance.choice((-1, 0, 1, 2, 3, 7, 99, 2**31 - 1, -(2**31))),
    lambda chance: chance.choice((2**62, -(2**62), 2**63 - 1)),
    lambda chance: values.odd(chance).encode("utf-8", "replace").decode(),
    lambda chance: chance.choice(
        (
            "",
            "/etc/passwd",
            "file:///etc/passwd",
            "../x.parquet",
            "s3://nobody/x.parquet",
            "file:///",
            "relative",
            "PARQUET",
            "CSV",
        )
    ),
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
        return f"{what}: {_broken_bytes(chance, path, chance.choice(manifests))}"
    how = _said_wrong(chance, path)
    if path != list_path and chance.random() < 0.7:
        _tell_length(table, path)
        how += ", its length as it is"
    return f"{what}: {how}"


def _broken_bytes(chance: Chance, path: Path, other: Path) -> str:
    bytes_ = path.read_bytes()
    at = chance.randrange(len(bytes_))
    flipped = bytearray(bytes_)
    for _ in range(chance.choice((1, 1, 20))):
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    ways: dict[str, Callable[[], object]] = {
        f"truncated at {at}": lambda: path.write_bytes(bytes_[:at]),
        "empty": lambda: path.write_bytes(b""),
        "bits turned": lambda: path.write_bytes(flipped),
        "zeros": lambda: path.write_bytes(bytes(len(bytes_))),
        "more at its end": lambda: path.write_bytes(bytes_ + chance.randbytes(40)),
        "gone": path.unlink,
        "a directory": lambda: (path.unlink(), path.mkdir()),
        "JSON": lambda: path.write_text('{"a": 1}'),
        "another one": lambda: path.write_bytes(other.read_bytes()),
    }
    how = chance.choice(list(ways))
    ways[how]()
    return how


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
            container, key, where = chance.choice([place for record in records for place in _places(record)])
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


def _places(value: Any, at: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Every container with each of its keys, and where that stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield value, key, f"{at}/{key}"
        yield from _places(each, f"{at}/{key}")
