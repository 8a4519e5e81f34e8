"""Access tokens of users and optimizers."""

from amoro_core.admin.arguments import duration, word
from amoro_core.admin.messages.values import milliseconds
from amoro_core.admin.services import Call, Services
from amoro_core.model.paging import page_limit
from amoro_core.model.tokens import AccessToken, Role
from amoro_core.protocol import admin_pb2 as pb


def create_token(services: Services, request: pb.CreateTokenRequest, call: Call) -> pb.Token:
    """Create a token. Only this answer holds it."""
    role = word(Role, request.kind, "role") or Role.ADMIN
    made, token = services.tokens.create(request.name, role, request.pattern, duration(request.lasts_ms))
    return _token(made, token)


def list_tokens(services: Services, request: pb.ListTokensRequest, call: Call) -> pb.ListTokensResponse:
    """Tokens by name, without those of the state directory."""
    page = services.tokens.list_tokens(request.after, page_limit(request.limit))
    return pb.ListTokensResponse(tokens=map(_token, page.items), next=page.next, total=page.total)


def revoke_token(services: Services, request: pb.RevokeTokenRequest, call: Call) -> pb.RevokeTokenResponse:
    """Revoke the token: its next call is refused."""
    services.tokens.revoke(request.name)
    return pb.RevokeTokenResponse(name=request.name)


def _token(item: AccessToken, secret: str = "") -> pb.Token:
    return pb.Token(
        name=item.name,
        kind=item.role.value,
        created_ms=milliseconds(item.created_at),
        token=secret,
        pattern=item.pattern,
        expires_ms=milliseconds(item.expires_at),
    )
