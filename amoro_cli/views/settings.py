"""Settings and properties with their origins."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.encoding import encode, encode_all
from amoro_cli.output import Document, Grid

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def settings_document(settings: "Sequence[pb.Setting]", origin: bool) -> Document:
    """Schema amoro.settings/v1: `settings` with `key`, `value`, `origin`; people see origins where they ask."""
    names = tuple(setting.key for setting in settings)
    return Document("amoro.settings/v1", {"settings": encode_all(settings)}, names, (_grid(settings, origin),))


def properties_document(answer: "pb.GetTablePropertiesResponse") -> Document:
    """Schema amoro.properties/v1: `table`, `properties` with `key`, `value`, `origin`, `enabled`, `enabled_origin`."""
    names = tuple(item.key for item in answer.properties)
    optimized = f"optimized: {'yes' if answer.enabled else 'no'}, {answer.enabled_origin}"
    return Document("amoro.properties/v1", encode(answer), names, (_grid(answer.properties, True), optimized))


def _grid(settings: "Sequence[pb.Setting]", origin: bool) -> Grid:
    header = ("KEY", "VALUE", "ORIGIN") if origin else ("KEY", "VALUE")
    return Grid(header, tuple((item.key, item.value or "-", item.origin)[: len(header)] for item in settings))
