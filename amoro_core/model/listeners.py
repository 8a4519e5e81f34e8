"""Listeners, which get the events of the journal: which ones each gets, what the settings say, and how far each is."""

import base64
import ipaddress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from amoro_core.errors import InvalidSettings
from amoro_core.model.history_events import EventKind
from amoro_core.model.principals import Role, checked_pattern, table_pattern
from amoro_core.model.tables import parse_table
from amoro_core.model.text_sanitizing import briefly, is_secret, without_secrets

#: Waits after failures in a row double from the first to the last; a listener that fails for a day is paused.
FIRST_WAIT, LAST_WAIT, PAUSED_AFTER = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


class Listener(BaseModel):
    """What gets events, and which. Making one raises ValidationError, and InvalidArgument for the pattern."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=lambda name: name.replace("_", "-"))
    name: Annotated[str, Field(pattern=r"^[!-~]{1,255}$")]
    #: Each change of a table only where this kind is named.
    kinds: frozenset[EventKind] = frozenset(EventKind) - {EventKind.TABLE_CHANGED}
    #: A pattern of tables, as for roles; "": also events of no table.
    on: Annotated[str, AfterValidator(lambda text: checked_pattern(text, Role.OPERATOR))] = ""

    @property
    def target(self) -> str:
        """Where events go, without what may be secret."""
        return "a function of a package"

    def admits(self, kind: EventKind, table: str) -> bool:
        """Whether the listener gets events of that kind about the table; "": about no table."""
        is_on = not self.on or (table != "" and table_pattern(self.on).matcher(None)(parse_table(table)))
        return kind in self.kinds and is_on


class Webhook(Listener):
    """One entry of the setting `listeners`."""

    allow_private: bool = Field(False, strict=True)
    url: str
    secret: Annotated[str, Field(pattern="^(env|file):.")]  # where it is, never the secret itself

    @property
    def target(self) -> str:
        """Scheme, host and port."""
        return "{0.scheme}://{0.netloc}".format(urlsplit(self.url))

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str, others: ValidationInfo) -> str:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0 or parts.username is not None or not url.isprintable() or " " in url:
            raise ValueError("it has no host, or a user. Write https://HOST/PATH")
        if others.data.get("allow_private") and parts.scheme == "http":
            return url
        if parts.scheme != "https":
            raise ValueError("it is not encrypted. Write https://HOST/PATH, or allow-private: true")
        if not others.data.get("allow_private") and is_private(parts.hostname):
            raise ValueError("it leads to a private address. If that is right, write allow-private: true")
        return url


def parse_listeners(value: object) -> tuple[Webhook, ...]:
    """The setting `listeners`. Raises InvalidSettings, which shows no secret."""
    listeners: dict[str, Webhook] = {}
    for entry in value if isinstance(value, list) else [value]:
        given = entry if isinstance(entry, dict) else {"an entry": entry}
        # YAML takes `on` for true.
        given = {"on" if key is True else str(key).replace("_", "-"): value for key, value in given.items()}
        name = briefly(str(given.get("name", "without a name")))
        try:
            webhook = Webhook.model_validate(given)
        except ValidationError as error:
            flaw = error.errors()[0]
            key = str(flaw["loc"][0])
            is_hidden = flaw["type"] == "missing" or is_secret(key)
            text = "" if is_hidden else f" {briefly(without_secrets(repr(flaw['input']).partition('?')[0]))}"
            hint = "docs/howto/listeners.md shows all keys of a listener."
            why = flaw["msg"].removeprefix("Value error, ")
            raise InvalidSettings(f"listener {name}: {key}{text}: {why}", hint=hint) from error
        if webhook.name in listeners:
            raise InvalidSettings(f"listeners has the name {name} twice", hint="Give each a name of its own.")
        listeners[webhook.name] = webhook
    return tuple(listeners.values())


def is_private(address: str) -> bool:
    """Whether that is an IP address which does not belong to the internet. A name is none."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address == "localhost"
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return not ip.is_global or ip.is_multicast


def signing_key(text: str) -> bytes:
    """The key in a secret: `whsec_` and Base64, as Standard Webhooks writes it, else the text. Raises ValueError."""
    key = base64.b64decode(text[6:], validate=True) if text.startswith("whsec_") else text.encode()
    if len(key) < 24:
        raise ValueError("a key has at least 24 bytes")
    return key


@dataclass(frozen=True, slots=True)
class ListenerCursor:
    """How far a listener is."""

    listener_name: str
    event_id: int  # up to this one it has all that it gets
    lost_events: int = 0  # of any kind, deleted before it was so far, since it was resumed
    failures: int = 0  # in a row
    failing_since: datetime | None = None
    failure: str = ""
    retry_at: datetime | None = None

    @property
    def is_paused(self) -> bool:
        """Whether nothing is sent until it is resumed."""
        return self.failures > 0 and self.retry_at is None

    def is_waiting(self, now: datetime) -> bool:
        """Whether nothing is sent now; a clock that was set back does not prolong it."""
        return self.is_paused or (self.retry_at is not None and self.retry_at - LAST_WAIT <= now < self.retry_at)

    def failed(self, why: str, now: datetime) -> "ListenerCursor":
        """The cursor after one more failure in a row."""
        since, wait = self.failing_since or now, min(FIRST_WAIT * 2 ** min(self.failures, 20), LAST_WAIT)
        retry_at = None if now - since >= PAUSED_AFTER else now + wait
        return replace(self, failures=self.failures + 1, failing_since=since, failure=why, retry_at=retry_at)
