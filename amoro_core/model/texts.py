"""Texts from outside: fit to be stored, sent and shown."""

from unicodedata import category

#: Control characters, those that steer the direction of what follows or take no room, halves of characters, and
#: separators of lines: they are not what they look like.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def is_text(text: str) -> bool:
    """Whether the text can be written as UTF-8: bytes of an argument or file name that are none become halves of
    characters in Python."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """The text with control and bidirectional characters escaped, so that a name can't steer a terminal or deceive."""
    if text.isprintable():
        return text
    return "".join(repr(char)[1:-1] if category(char) in _UNSEEN else char for char in text)


LONGEST_MESSAGE = 4096  # bytes of an error's sentence, on the wire and on a terminal: it is cut once
LONGEST_REASON = 2000  # of what is kept of an error, and shown in the midst of other things
LONGEST_NAME = 255  # characters: what databases of catalogs hold, too
NAMES = f"Use letters, digits, _ and -, at most {LONGEST_NAME} characters."


def is_name(text: str) -> bool:
    """Whether people can be asked to type it: 1 to 255 characters, all of them visible."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and not any(char.isspace() for char in text)


def one_line(text: str) -> str:
    """The text without breaks of lines."""
    return " ".join(text.split())


def briefly(text: str, most: int = 300) -> str:
    """The text in one line of at most so many characters."""
    line = one_line(text)
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def cut(text: str, most: int) -> str:
    """The text, or its beginning with its length said where it would take more than `most` bytes as gRPC sends it.

    That is percent-encoded: three bytes for each that is not printable ASCII. Halves of characters are escaped.
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
