"""Users, and login links."""

from amoro_core.admin.arguments import word
from amoro_core.admin.messages.values import milliseconds
from amoro_core.admin.services import Call, Services
from amoro_core.errors import IllegalState, NotAllowed
from amoro_core.model.accounts import UserAccount
from amoro_core.model.paging import page_limit
from amoro_core.model.tokens import Role
from amoro_core.protocol import accounts_pb2 as pb


def add_user(services: Services, request: pb.AddUserRequest, call: Call) -> pb.User:
    """Add a user."""
    role = word(Role, request.role, "role") or Role.VIEWER
    return _user(services.users.add(request.name, role, request.pattern, request.password))


def update_user(services: Services, request: pb.UpdateUserRequest, call: Call) -> pb.User:
    """Give a user another role or pattern; open sessions end."""
    pattern = request.pattern if request.HasField("pattern") else None
    return _user(services.users.update(request.name, word(Role, request.role, "role"), pattern))


def set_password(services: Services, request: pb.SetPasswordRequest, call: Call) -> pb.User:
    """Give a user another password; open sessions end."""
    return _user(services.users.set_password(request.name, request.password))


def remove_user(services: Services, request: pb.RemoveUserRequest, call: Call) -> pb.RemoveUserResponse:
    """Remove a user; open sessions end."""
    services.users.remove(request.name)
    return pb.RemoveUserResponse(name=request.name)


def list_users(services: Services, request: pb.ListUsersRequest, call: Call) -> pb.ListUsersResponse:
    """Users by name."""
    page = services.users.list_users(request.after, page_limit(request.limit))
    return pb.ListUsersResponse(users=map(_user, page.items), next=page.next, total=page.total)


def make_login_link(services: Services, request: pb.MakeLoginLinkRequest, call: Call) -> pb.LoginLink:
    """A link that logs a browser in as the calling token, once. Raises IllegalState where no pages are served."""
    if call.principal.is_user:  # a token may have the same name
        raise NotAllowed("a login link is made for a token, not for a user", hint="Log in with the password.")
    address = services.program.http_address()
    if not address:
        raise IllegalState("this coordinator serves no pages", hint="Start one with amoro up, and http-port not 0.")
    code, ends_at = services.sessions.make_link(call.principal.name)
    return pb.LoginLink(url=f"{address}/login/link?code={code}", expires_ms=milliseconds(ends_at))


def _user(user: UserAccount) -> pb.User:
    return pb.User(name=user.name, role=user.role.value, pattern=user.pattern, created_ms=milliseconds(user.created_at))
