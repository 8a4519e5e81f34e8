"""Masking of what must never be shown: values of secret keys, and secrets within texts."""

import hmac
import re
from collections.abc import Mapping
from typing import NoReturn, Self

MASK = "***"

_WORDS = ("password", "secret", "token", "credential", "key", "authorization", "connection-string", "passphrase")
#: Keys that hold one of these words and no secret.
_HARMLESS = (
    "authorization-url",
    "oauth2-server-uri",
    "token-refresh-enabled",
    "token-expires",
    "key-file",
    "token-file",
)
_IN_TEXTS = (
    re.compile(r"(://[^:/@?#\s]*):[^\s]*@"),  # the password of a URI, an @ or / within it, too
    re.compile(
        r"(?i)((?:password|secret|token|credential|accountkey|access-key|passphrase)['\"]?\s*[=:]\s*['\"]?)[^&\s'\",;}]+"
    ),
    re.compile(r"(?i)(\b(?:bearer|basic)\s+)[\w.~+/=-]{4,}"),
    re.compile(r"()\bamo_[\w-]{20,}"),  # tokens of ours
)
_REPLACEMENTS = (rf"\1:{MASK}@", rf"\1{MASK}", rf"\1{MASK}", MASK)


class Secret:
    """A text that is shown as *** and only returned by `reveal`.

    It is not a str, so that encoders refuse it: `json.dumps` and `pickle.dumps` raise TypeError. Copying returns it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, to be sent to its recipient only."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


def is_secret(key: str) -> bool:
    """Whether the value of a property must not be shown; headers may contain anything."""
    lower = key.lower()
    if lower.endswith(_HARMLESS):
        return False
    return lower in ("auth", "sas") or lower.startswith("header.") or any(word in lower for word in _WORDS)


def masked(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with secrets, and passwords within URIs, replaced."""
    return {key: MASK if is_secret(key) else without_secrets(value) for key, value in properties.items()}


def without_secrets(text: str) -> str:
    """The text with passwords of URIs, values after words such as `password=`, and our tokens replaced."""
    for pattern, replacement in zip(_IN_TEXTS, _REPLACEMENTS, strict=True):
        text = pattern.sub(replacement, text)
    return text
