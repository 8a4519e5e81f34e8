"""Users with their roles, patterns and passwords, and tokens."""

import time
from datetime import timedelta

from starlette.routing import Route

from amoro_core.errors import InvalidArgument, NotFound
from amoro_core.model.principals import Role
from amoro_core.model.properties import parse_duration
from amoro_core.protocol import accounts_pb2 as accounts
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.web.pages.framework import ROWS, Field, Listed, Page, PageRequest, Redirect, Site, command, confirm_page

_ROLES = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
_MOST_TOKENS = 200
_PAGE = 1000
#: The label of a field for the pattern of an account.
PATTERN = "Tables on which an operator may act, such as shop.db.* (empty: all)"
_PASSWORD = Field("password", "Password, 12 characters or more", "", "password", is_needed=True)


def routes(site: Site) -> list[Route]:
    """The page of users and tokens, and the forms of both."""
    return [
        site.page("/users", show_users, after=()),
        *site.confirmed("/users/add", ask_to_add, add, "name", "role", "pattern", "password"),
        *site.confirmed("/users/{user}/update", ask_to_update, update, "role", "pattern", "before"),
        *site.confirmed("/users/{user}/password", ask_for_password, set_password, "password"),
        *site.confirmed("/users/{user}/remove", ask_to_remove, remove),
        *site.confirmed("/tokens/create", ask_to_create, create, "name", "role", "pattern", "expires"),
        *site.confirmed("/tokens/{token}/revoke", ask_to_revoke, revoke),
    ]


async def show_users(visit: PageRequest) -> Page:
    """Fifty users, and tokens."""
    response = await visit.ask(accounts.ListUsersRequest(limit=ROWS, **visit.query), accounts.ListUsersResponse)
    tokens = await visit.ask(pb.ListTokensRequest(limit=_MOST_TOKENS), pb.ListTokensResponse)
    values = {
        "list": Listed("/users", "users", visit.query, response, response.users),
        "tokens": tokens,
        "now_ms": round(time.time() * 1000),
    }
    return Page("users.html", "Users", values, is_live=True)


async def ask_to_add(visit: PageRequest) -> Page:
    """The form of a new user."""
    fields = (
        Field("name", "Name", is_needed=True),
        Field("role", "Role", Role.VIEWER, values=_ROLES),
        Field("pattern", PATTERN),
        _PASSWORD,
    )
    effects = ("Whoever has the name and the password can log in with that role.",)
    return confirm_page("Add a user", effects, "Add", "/users", "amoro user add NAME --role ROLE --on PATTERN", fields)


async def add(visit: PageRequest) -> Redirect:
    """Add the user."""
    response = await visit.ask(accounts.AddUserRequest(**visit.form), accounts.User)
    return Redirect("/users", f"{response.name} can log in as {response.role}.")


async def ask_to_update(visit: PageRequest) -> Page:
    """The confirmation of another role or pattern."""
    user = await _user_of(visit)
    acts = f", and acts on {user.pattern}" if user.pattern else ""
    effects = (
        f"{user.name} has the role {user.role}{acts}. The new ones hold from now on, for sessions that begin then: the "
        f"sessions of {user.name} end at once.",
        "A viewer only reads. An operator optimizes, cancels, blocks and scales; an admin does everything.",
    )
    fields = (
        Field("role", "Role", user.role, values=_ROLES),
        Field("pattern", PATTERN, user.pattern),
        Field("before", "", user.pattern, "hidden"),
    )
    same = command("user", "update", user.name, "--role", "ROLE", "--on", "PATTERN")
    return confirm_page(f"Change {user.name}?", effects, "Change", "/users", same, fields)


async def update(visit: PageRequest) -> Redirect:
    """Give the user the role and the pattern; a pattern that is left as it was goes with the role that had it."""
    typed = visit.form
    is_left = typed["role"] != Role.OPERATOR and typed["pattern"] == typed["before"]
    pattern = None if is_left else typed["pattern"]
    request = accounts.UpdateUserRequest(name=visit.named("user"), role=typed["role"], pattern=pattern)
    now = await visit.ask(request, accounts.User)
    return Redirect("/users", f"{now.name} is {now.role} from now on{f', for {now.pattern}' if now.pattern else ''}.")


async def ask_for_password(visit: PageRequest) -> Page:
    """The confirmation of another password."""
    name = (await _user_of(visit)).name
    effects = (f"{name} logs in with the new password from now on. The sessions of {name} end at once.",)
    same = command("user", "password", name)
    return confirm_page(f"A new password for {name}?", effects, "Set it", "/users", same, (_PASSWORD,))


async def set_password(visit: PageRequest) -> Redirect:
    """Give the user the password."""
    user = await visit.ask(accounts.SetPasswordRequest(name=visit.named("user"), **visit.form), accounts.User)
    return Redirect("/users", f"{user.name} has a new password.")


async def ask_to_remove(visit: PageRequest) -> Page:
    """The confirmation of removing the user."""
    name = (await _user_of(visit)).name
    effects = (f"{name} can't log in any more, and the sessions of {name} end at once.",)
    return confirm_page(f"Remove {name}?", effects, "Remove", "/users", command("user", "remove", name), is_grave=True)


async def remove(visit: PageRequest) -> Redirect:
    """Remove the user."""
    answer = await visit.ask(accounts.RemoveUserRequest(name=visit.named("user")), accounts.RemoveUserResponse)
    return Redirect("/users", f"{answer.name} is removed.")


async def _user_of(visit: PageRequest) -> accounts.User:
    """The user of the page's path. Raises NotFound."""
    name, after = visit.named("user"), ""
    while True:
        page = await visit.ask(accounts.ListUsersRequest(limit=_PAGE, after=after), accounts.ListUsersResponse)
        for user in page.users:
            if user.name == name:
                return user
        if not page.next:
            raise NotFound(f"there is no user {name!r}", hint="The page of users has those there are.")
        after = page.next


async def ask_to_create(visit: PageRequest) -> Page:
    """The form of a new token."""
    fields = (
        Field("name", "Name", is_needed=True),
        Field("role", "Role", Role.VIEWER, values=Role),
        Field("pattern", PATTERN),
        Field("expires", "How long it lasts, such as 90d (empty: until it is revoked)", "90d"),
    )
    effects = (
        "Programs that send the token act with its role. The next page shows it, once: only its hash is kept.",
        "With the role enrolment it registers optimizers, and does nothing else.",
    )
    same = "amoro token create NAME --role ROLE --on PATTERN --expires 90d"
    return confirm_page("Make a token", effects, "Make it", "/users", same, fields)


async def create(visit: PageRequest) -> Page:
    """Make the token and show it. This answer alone holds it: a page that is loaded again makes no second one."""
    typed = visit.form
    if not typed["role"]:  # to the operation that means admin
        raise InvalidArgument("a token needs a role", hint=f"One of: {', '.join(Role)}.")
    lasts = _duration(typed["expires"])
    request = pb.CreateTokenRequest(
        name=typed["name"], kind=typed["role"], pattern=typed["pattern"], lasts_ms=lasts // timedelta(milliseconds=1)
    )
    response = await visit.ask(request, pb.Token)
    return Page("token.html", f"The token {response.name}", {"token": response})


async def ask_to_revoke(visit: PageRequest) -> Page:
    """The confirmation of revoking the token."""
    name = visit.named("token")
    effects = (
        f"Programs that use the token {name} are refused from now on. Optimizers that registered with it stay.",
        "It can't be brought back: only another one can be made.",
    )
    return confirm_page(f"Revoke {name}?", effects, "Revoke", "/users", command("token", "revoke", name), is_grave=True)


async def revoke(visit: PageRequest) -> Redirect:
    """Revoke the token."""
    answer = await visit.ask(pb.RevokeTokenRequest(name=visit.named("token")), pb.RevokeTokenResponse)
    return Redirect("/users", f"The token {answer.name} is revoked.")


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
