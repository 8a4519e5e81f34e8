"""Documents of lists: in the order and with the columns that are wanted, and what is left to list."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from amoro_cli.encoding import encode_all
from amoro_cli.listing import Arrangement, Listing
from amoro_cli.output import Block, Document
from amoro_cli.paging import Part

if TYPE_CHECKING:
    from google.protobuf.message import Message

Item = TypeVar("Item", bound="Message")


def list_document(
    schema: str,
    listing: Listing[Item],
    part: Part[Item],
    arrangement: Arrangement,
    name: Callable[[Item], str],
    nothing: str,
    *,
    before: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
) -> Document:
    """`before`, the items under the schema's own name, without some of their fields, `total` and `next`.

    `nothing` is told where there is none.
    """
    items = listing.arranged(part.items, arrangement)
    bodies = [{field: value for field, value in item.items() if field not in without} for item in encode_all(items)]
    key = schema.removeprefix("amoro.").partition("/")[0]
    body = {**(before or {}), key: bodies, **part.keys}
    blocks: tuple[Block, ...] = (listing.grid(items, arrangement), *part.rest) if items else (nothing,)
    return Document(schema, body, tuple(map(name, items)), blocks)
