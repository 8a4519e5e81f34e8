"""Operations on tokens, users and the audit."""

from amoro_core.admin.context import Call, Services, as_message, duration, milliseconds, moment, word
from amoro_core.errors import IllegalState, InvalidArgument, NotAllowed
from amoro_core.model.history_events import AuditEvent, AuditFilter, AuditOutcome
from amoro_core.model.paging import Window, page_limit
from amoro_core.model.principals import AccessToken, Role, UserAccount
from amoro_core.protocol import accounts_pb2 as accounts_pb
from amoro_core.protocol import admin_pb2 as admin_pb
from amoro_core.protocol import audit_pb2 as pb

#: Calls on a page without a limit.
EVENTS = 100


def list_audit(services: Services, request: pb.ListAuditRequest, call: Call) -> pb.ListAuditResponse:
    """Calls that change something, the newest first."""
    wanted = AuditFilter(
        request.actor,
        request.operation,
        request.object,
        word(AuditOutcome, request.outcome, "outcome"),
        moment(request.since_ms) if request.since_ms else None,
    )
    page = services.auditing.list_events(wanted, Window(page_limit(request.limit or EVENTS), request.after))
    return as_message(pb.ListAuditResponse, page, events=map(_message, page.items))


def _message(item: AuditEvent) -> pb.AuditEvent:
    call, who = item.call, item.call.principal
    return as_message(
        pb.AuditEvent,
        item,
        call,
        who,
        happened_ms=milliseconds(item.at),
        actor=who.name,
        actor_kind="user" if who.is_user else "token",
    )


def create_token(services: Services, request: admin_pb.CreateTokenRequest, call: Call) -> admin_pb.Token:
    """Create a token. Only this answer holds it."""
    role = word(Role, request.kind, "role")
    if role is None:
        raise InvalidArgument("a token needs a role", hint=f"Give one of: {', '.join(Role)}.")
    access_token, token = services.tokens.create(request.name, role, request.pattern, duration(request.lasts_ms))
    return _token(access_token, token)


def list_tokens(services: Services, request: admin_pb.ListTokensRequest, call: Call) -> admin_pb.ListTokensResponse:
    """Tokens by name, without those of the state directory."""
    page = services.tokens.list_tokens(request.after, page_limit(request.limit))
    return admin_pb.ListTokensResponse(tokens=map(_token, page.items), next=page.next, total=page.total)


def revoke_token(services: Services, request: admin_pb.RevokeTokenRequest, call: Call) -> admin_pb.RevokeTokenResponse:
    """Revoke the token: its next call is refused."""
    services.tokens.revoke(request.name)
    return admin_pb.RevokeTokenResponse(name=request.name)


def _token(item: AccessToken, secret: str = "") -> admin_pb.Token:
    return as_message(admin_pb.Token, item, kind=item.role.value, token=secret)


def add_user(services: Services, request: accounts_pb.AddUserRequest, call: Call) -> accounts_pb.User:
    """Add a user."""
    role = word(Role, request.role, "role") or Role.VIEWER
    return _user(services.users.add(request.name, role, request.pattern, request.password))


def update_user(services: Services, request: accounts_pb.UpdateUserRequest, call: Call) -> accounts_pb.User:
    """Give a user another role or pattern; open sessions end."""
    pattern = request.pattern if request.HasField("pattern") else None
    return _user(services.users.update(request.name, word(Role, request.role, "role"), pattern))


def set_password(services: Services, request: accounts_pb.SetPasswordRequest, call: Call) -> accounts_pb.User:
    """Give a user another password; open sessions end."""
    return _user(services.users.set_password(request.name, request.password))


def remove_user(
    services: Services, request: accounts_pb.RemoveUserRequest, call: Call
) -> accounts_pb.RemoveUserResponse:
    """Remove a user; open sessions end."""
    services.users.remove(request.name)
    return accounts_pb.RemoveUserResponse(name=request.name)


def list_users(services: Services, request: accounts_pb.ListUsersRequest, call: Call) -> accounts_pb.ListUsersResponse:
    """Users by name."""
    page = services.users.list_users(request.after, page_limit(request.limit))
    return accounts_pb.ListUsersResponse(users=map(_user, page.items), next=page.next, total=page.total)


def make_login_link(services: Services, request: accounts_pb.MakeLoginLinkRequest, call: Call) -> accounts_pb.LoginLink:
    """A link that logs a browser in as the calling token, once. Raises IllegalState where no pages are served."""
    if call.principal.is_user:  # a token may have the same name
        raise NotAllowed("a login link is made for a token, not for a user", hint="Log in with the password.")
    address = services.program.http_address()
    if not address:
        raise IllegalState("this coordinator serves no pages", hint="Start one with amoro up, and http-port not 0.")
    code, ends_at = services.sessions.make_link(call.principal.name)
    return accounts_pb.LoginLink(url=f"{address}/login/link?code={code}", expires_ms=milliseconds(ends_at))


def _user(user: UserAccount) -> accounts_pb.User:
    return as_message(accounts_pb.User, user)
