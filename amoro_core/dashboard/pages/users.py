"""Who may log in: users, and tokens of programs."""

import shlex

from starlette.routing import Route

from amoro_core.dashboard.pages.confirming import Confirmation, Field
from amoro_core.dashboard.pages.lists import ROWS, Listed
from amoro_core.dashboard.pages.site import Site
from amoro_core.dashboard.pages.urls import to
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.model.tokens import Role
from amoro_core.protocol import accounts_pb2 as accounts
from amoro_core.protocol import admin_pb2 as pb

_ROLES = (Role.VIEWER.value, Role.OPERATOR.value, Role.ADMIN.value)
_MOST_TOKENS = 200


def routes(site: Site) -> list[Route]:
    """The page of users and tokens, and its forms."""
    return [
        site.page("/users", show_users),
        site.page("/users/add", ask_to_add),
        site.action("/users/add", add),
        site.page("/users/{user}/remove", ask_to_remove),
        site.action("/users/{user}/remove", remove),
        site.page("/tokens/{token}/revoke", ask_to_revoke),
        site.action("/tokens/{token}/revoke", revoke),
    ]


async def show_users(visit: Visit) -> Shown:
    """Fifty users, and tokens."""
    asked = visit.query(after=())
    request = accounts.ListUsersRequest(limit=ROWS, after=asked["after"])
    found = await visit.ask("ListUsers", request, accounts.ListUsersResponse)
    tokens = await visit.ask("ListTokens", pb.ListTokensRequest(limit=_MOST_TOKENS), pb.ListTokensResponse)
    values = {
        "users": found.users,
        "list": Listed("/users", "users", {}, len(found.users), found.total, found.next, asked["after"]),
        "tokens": tokens.tokens,
        "more_tokens": tokens.total - len(tokens.tokens),
    }
    return Shown("users.html", "Users", values, subjects=(("users", ""),))


async def ask_to_add(visit: Visit) -> Shown:
    """What a new user needs."""
    visit.query()
    fields = (
        Field("name", "Name", is_needed=True),
        Field("role", "Role", _ROLES[0], values=_ROLES, any=_ROLES[0]),
        Field("pattern", "Tables on which an operator may act, such as shop.db.* (empty: all)"),
        Field("password", "Password, 12 characters or more", "", "password", is_needed=True),
    )
    effects = ("Whoever has the name and the password can log in with that role.",)
    command = "amoro user add NAME --role ROLE"
    return Confirmation("Add a user", effects, "/users/add", "Add", "/users", command, fields).shown()


async def add(visit: Visit) -> Gone:
    """Add the user."""
    typed = await visit.form("name", "role", "pattern", "password")
    request = accounts.AddUserRequest(
        name=typed["name"], role=typed["role"], pattern=typed["pattern"], password=typed["password"]
    )
    made = await visit.ask("AddUser", request, accounts.User)
    return Gone("/users", f"{made.name} can log in as {made.role}.")


async def ask_to_remove(visit: Visit) -> Shown:
    """What removing the user will do."""
    visit.query()
    name = visit.named("user")
    effects = (f"{name} can't log in any more, and the sessions of {name} end at once.",)
    command = shlex.join(["amoro", "user", "remove", name])
    return Confirmation(
        f"Remove {name}?", effects, to("users", name, "remove"), "Remove", "/users", command, is_grave=True
    ).shown()


async def remove(visit: Visit) -> Gone:
    """Remove the user."""
    await visit.form()
    request = accounts.RemoveUserRequest(name=visit.named("user"))
    gone = await visit.ask("RemoveUser", request, accounts.RemoveUserResponse)
    return Gone("/users", f"{gone.name} is removed.")


async def ask_to_revoke(visit: Visit) -> Shown:
    """What revoking the token will do."""
    visit.query()
    name = visit.named("token")
    effects = (f"Programs that use the token {name} are refused from now on.",)
    command = shlex.join(["amoro", "token", "revoke", name])
    return Confirmation(
        f"Revoke {name}?", effects, to("tokens", name, "revoke"), "Revoke", "/users", command, is_grave=True
    ).shown()


async def revoke(visit: Visit) -> Gone:
    """Revoke the token."""
    await visit.form()
    gone = await visit.ask("RevokeToken", pb.RevokeTokenRequest(name=visit.named("token")), pb.RevokeTokenResponse)
    return Gone("/users", f"The token {gone.name} is revoked.")
