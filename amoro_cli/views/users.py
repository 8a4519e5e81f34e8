"""Users, and login links."""

from typing import TYPE_CHECKING

from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Document, Pairs
from amoro_cli.paging import Part
from amoro_cli.views.lists import list_document
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_time

if TYPE_CHECKING:
    from amoro_core.protocol import accounts_pb2 as pb

USERS: "Listing[pb.User]" = Listing(
    (
        Column("USER", lambda user: user.name),
        Column("ROLE", lambda user: user.role),
        Column("ON", lambda user: user.pattern or "-"),
        Column("CREATED", lambda user: format_time(user.created_ms), lambda user: user.created_ms),
    )
)


def user_detail(user: "pb.User") -> Document:
    """Schema amoro.user/v1: `name`, `role`, `pattern`, `created_at`."""
    pairs = (("name", user.name), ("role", user.role), *((("on", user.pattern),) if user.pattern else ()))
    return Document("amoro.user/v1", encode(user), (user.name,), (Pairs(pairs),))


def user_list(part: "Part[pb.User]", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.users/v1: `users`, `total`, `next`."""
    nothing = "No user was added; the admin token can do everything, and amoro login makes a link with it."
    return list_document("amoro.users/v1", USERS, part, arrangement, lambda user: user.name, nothing)


def user_removed(removed: "pb.RemoveUserResponse") -> Document:
    """Schema amoro.removed/v1: `name`."""
    return Document("amoro.removed/v1", encode(removed), (removed.name,), (f"User {removed.name} is removed.",))


def login_link(link: "pb.LoginLink") -> Document:
    """Schema amoro.login/v1: `url`, `expires_at`. The name printed is the link itself."""
    told = f"It can be used once, until {format_time(link.expires_ms)}."
    return Document("amoro.login/v1", encode(link), (link.url,), (link.url, told))
