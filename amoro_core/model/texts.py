"""Texts from outside, made safe to store, send and show."""

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
    """Whether it is a usable name: 1 to 255 characters, all of them visible."""
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
    known = text.encode(errors="backslashreplace").decode()
    if _sent_bytes(known) <= most:
        return known
    told = f" … (cut: {len(known):,} characters in all)"
    left = most - _sent_bytes(told)
    end = 0
    for char in known:
        left -= _sent_bytes(char)
        if left < 0:
            break
        end += 1
    return known[:end] + told


def _sent_bytes(text: str) -> int:
    return sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in text.encode())
