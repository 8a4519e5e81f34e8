"""Settings and properties with their origins."""

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from amoro_cli.output import Block, Document, Grid
from amoro_core.documents.encoding import encode, encode_all

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb

_UNKNOWN = "unknown"  # the origin of a property that has no effect


def settings_document(settings: "Sequence[pb.Setting]", origin: bool) -> Document:
    """Schema amoro.settings/v1: `settings` with `key`, `value`, `origin`; as text, origins only on request."""
    names = tuple(setting.key for setting in settings)
    return Document("amoro.settings/v1", {"settings": encode_all(settings)}, names, (_grid(settings, origin),))


def properties_document(answer: "pb.GetTablePropertiesResponse") -> Document:
    """Schema amoro.properties/v1: `table`, `properties` with `key`, `value`, `origin`, `default`; `enabled`,
    `enabled_origin`."""
    names = tuple(item.key for item in answer.properties)
    optimized = f"optimized: {'yes' if answer.enabled else 'no'}, {answer.enabled_origin}"
    blocks: tuple[Block, ...] = (_grid(answer.properties, True), *_unknown(answer.properties), optimized)
    return Document("amoro.properties/v1", encode(answer), names, blocks)


def _unknown(properties: "Sequence[pb.Setting]") -> Iterator[str]:
    """Unknown properties, with a suggestion for each."""
    known = [_tail(item) for item in properties if item.origin != _UNKNOWN]
    for item in properties:
        if item.origin == _UNKNOWN:
            prefix, tail = item.key[: -len(_tail(item))], _tail(item)
            close = difflib.get_close_matches(tail, known, n=1, cutoff=0.8)
            yield f"{item.key} is not known here{f': did you mean {prefix}{close[0]}?' if close else '.'}"


def _tail(item: "pb.Setting") -> str:
    """The key without the prefix that all share, which would make them all look similar."""
    return item.key.partition(".")[2]


def _grid(settings: "Sequence[pb.Setting]", origin: bool) -> Grid:
    header = ("KEY", "VALUE", "ORIGIN") if origin else ("KEY", "VALUE")
    rows = tuple((item.key, item.value or "-", item.origin)[: len(header)] for item in settings)
    return Grid(header, rows, elastic=header[-1])
