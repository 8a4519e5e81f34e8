"""Who asks: a token as a bearer or as a password, or a user with a password; nothing that Amoro signs."""

import binascii
from base64 import b64decode

from starlette.requests import Request

from amoro_core.errors import NotAllowed, UnknownToken
from amoro_core.model.principals import Channel, Principal
from amoro_core.web.app_context import address_of, bearer, offered

_HOW = "Send Authorization: Bearer TOKEN, or Basic with a user and password, or with any user and a token as password."
#: What a request that Amoro's clients sign has in its query.
_SIGNED = ("apiKey", "signature")


async def identified(request: Request) -> Principal:
    """The account of the request. Raises UnknownToken, NotAllowed for a signed one, and TooManyTries."""
    parts, address = offered(request), address_of(request)
    given = request.headers.get("authorization", "")
    if not given:
        if any(name in request.query_params for name in _SIGNED):
            raise NotAllowed("signatures by MD5 prove nothing and are not accepted", hint=_HOW)
        raise UnknownToken("the request carries no token", hint=_HOW)
    kind, _, sent = given.partition(" ")
    if kind.lower() != "basic":
        return await parts.operations.admit(bearer(request), Channel.REST, address)
    name, password = _pair(sent)
    if password.startswith("amo_"):
        return await parts.operations.admit(password, Channel.REST, address)
    found = await parts.doors.recognize(name, password, address)
    if found is None:
        raise UnknownToken("the user or the password is wrong", hint=_HOW)
    return found


def _pair(sent: str) -> tuple[str, str]:
    try:
        name, colon, password = b64decode(sent.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError) as error:
        raise UnknownToken("the header Authorization is no Basic one", hint=_HOW) from error
    if not colon:
        raise UnknownToken("the header Authorization is no Basic one", hint=_HOW)
    return name, password
