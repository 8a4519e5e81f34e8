"""Documents of lists: in the requested order, with the requested columns, and how much is left."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from amoro_cli.list_options import Arrangement, Listing, ListRange
from amoro_cli.output import Block, Document
from amoro_core.documents.message_json import encode_all

if TYPE_CHECKING:
    from google.protobuf.message import Message

Item = TypeVar("Item", bound="Message")


def list_document(
    schema: str,
    listing: Listing[Item],
    part: ListRange[Item],
    arrangement: Arrangement,
    name: Callable[[Item], str],
    nothing: str,
    *,
    before: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
) -> Document:
    """The keys of `before`, the items under the schema's name except the fields in `without`, `total` and `next`.

    `nothing` is the text for an empty list.
    """
    items = listing.arranged(part.items, arrangement)
    bodies = [{field: value for field, value in item.items() if field not in without} for item in encode_all(items)]
    key = schema.removeprefix("amoro.").partition("/")[0]
    body = {**(before or {}), key: bodies, **part.keys}
    blocks: tuple[Block, ...] = (listing.grid(items, arrangement), *part.rest) if items else (nothing,)
    return Document(schema, body, tuple(map(name, items)), blocks, key)
