"""Texts from outside made safe to store, send and show; secrets masked."""

import hmac
import re
from collections.abc import Mapping
from typing import NoReturn, Self
from unicodedata import category

#: Control and format characters (such as bidirectional marks), surrogates, and line separators: text that contains them
#: is not what it looks like.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def is_text(text: str) -> bool:
    """Whether the text can be encoded as UTF-8: invalid bytes of an argument or file name become lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """The text with control and bidirectional characters escaped: a name can't control a terminal or deceive."""
    if text.isprintable():
        return text
    return "".join(repr(char)[1:-1] if category(char) in _UNSEEN else char for char in text)


LONGEST_MESSAGE = 4096  # bytes of an error message, on the wire and on a terminal
LONGEST_REASON = 2000  # of an error that is stored and shown among other things
LONGEST_NAME = 255  # characters: the limit of catalogs' databases too
NAMES = f"Use letters, digits, _ and -, at most {LONGEST_NAME} characters."


def is_name(text: str) -> bool:
    """Whether the text is a usable name: 1 to 255 characters, all of them visible."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and not any(char.isspace() for char in text)


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def briefly(text: str, most: int = 300) -> str:
    """The text on one line of at most `most` characters."""
    line = one_line(text)
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def cut(text: str, most: int) -> str:
    """The text, or its beginning and its length if it takes more than `most` bytes in gRPC's encoding.

    gRPC percent-encodes messages: three bytes for each byte that is not printable ASCII. Surrogates are escaped.
    """
    clean = text.encode(errors="backslashreplace").decode()
    if _sent_bytes(clean) <= most:
        return clean
    note = f" … (cut: {len(clean):,} characters in all)"
    room = most - _sent_bytes(note)
    end = 0
    for char in clean:
        room -= _sent_bytes(char)
        if room < 0:
            break
        end += 1
    return clean[:end] + note


def _sent_bytes(text: str) -> int:
    return sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in text.encode())


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
