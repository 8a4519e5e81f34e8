"""Tokens of programs: one is made and shown once, or revoked."""

import shlex
from datetime import timedelta

from starlette.routing import Route

from amoro_core.dashboard.pages.confirming import Confirmation, Field
from amoro_core.dashboard.pages.site import Site
from amoro_core.dashboard.pages.urls import to
from amoro_core.dashboard.pages.users import PATTERN
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.errors import InvalidArgument
from amoro_core.model.quantities import parse_duration
from amoro_core.model.tokens import Role
from amoro_core.protocol import admin_pb2 as pb

_ROLES = tuple(role.value for role in Role)


def routes(site: Site) -> list[Route]:
    """The forms of tokens; the page of users lists them."""
    return [
        site.page("/tokens/create", ask_to_create),
        site.action("/tokens/create", create),
        site.page("/tokens/{token}/revoke", ask_to_revoke),
        site.action("/tokens/{token}/revoke", revoke),
    ]


async def ask_to_create(visit: Visit) -> Shown:
    """What a new token needs."""
    visit.query()
    fields = (
        Field("name", "Name", is_needed=True),
        Field("role", "Role", Role.VIEWER.value, values=_ROLES, any=""),
        Field("pattern", PATTERN),
        Field("expires", "How long it lasts, such as 90d (empty: until it is revoked)", "90d"),
    )
    effects = (
        "Programs that send the token act with its role. The next page shows it, once: only its hash is kept.",
        "With the role enrolment it registers optimizers, and does nothing else.",
    )
    command = "amoro token create NAME --role ROLE --on PATTERN --expires 90d"
    return Confirmation("Make a token", effects, "/tokens/create", "Make it", "/users", command, fields).shown()


async def create(visit: Visit) -> Shown:
    """Make the token and show it. This answer alone holds it: a page that is loaded again makes no second one."""
    typed = await visit.form("name", "role", "pattern", "expires")
    if not typed["role"]:  # to the operation that means admin
        raise InvalidArgument("a token needs a role", hint=f"One of: {', '.join(_ROLES)}.")
    lasts = _duration(typed["expires"])
    request = pb.CreateTokenRequest(
        name=typed["name"], kind=typed["role"], pattern=typed["pattern"], lasts_ms=lasts // timedelta(milliseconds=1)
    )
    made = await visit.ask("CreateToken", request, pb.Token)
    return Shown("token.html", f"The token {made.name}", {"token": made})


async def ask_to_revoke(visit: Visit) -> Shown:
    """What revoking the token will do."""
    visit.query()
    name = visit.named("token")
    effects = (
        f"Programs that use the token {name} are refused from now on. Optimizers that registered with it stay.",
        "It can't be brought back: only another one can be made.",
    )
    command = shlex.join(["amoro", "token", "revoke", name])
    return Confirmation(
        f"Revoke {name}?", effects, to("tokens", name, "revoke"), "Revoke", "/users", command, is_grave=True
    ).shown()


async def revoke(visit: Visit) -> Gone:
    """Revoke the token."""
    await visit.form()
    gone = await visit.ask("RevokeToken", pb.RevokeTokenRequest(name=visit.named("token")), pb.RevokeTokenResponse)
    return Gone("/users", f"The token {gone.name} is revoked.")


def _duration(text: str) -> timedelta:
    """The duration; none for "". Raises InvalidArgument."""
    if not text:
        return timedelta(0)
    try:
        lasts = parse_duration(text)
    except ValueError as error:
        raise InvalidArgument(str(error), hint="Write 90d, 12h, or nothing.") from error
    if lasts < timedelta(milliseconds=1):  # to the operation, none is for ever
        raise InvalidArgument(f"a token of {text} is over at once", hint="Write 90d, 12h, or nothing.")
    return lasts
