"""Bad values, by what they stand for. None is a good one by chance."""

from __future__ import annotations

import random
from collections.abc import Sequence

Chance = random.Random

#: Letters that a name should not bring along: of the terminal, of the text's direction, of no UTF-8, of quotes.
_ODD = (
    *("\x1b[2J", "\x07", "\u202e", "\u200b", "\udcff", "'; DROP TABLE x; --", '"', "%s", "{0}", "\\", "\r", "\t"),
    "é" * 200,
)


def word(chance: Chance, least: int = 1, most: int = 12) -> str:
    """Letters and digits."""
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789_", k=chance.randint(least, most)))


def odd(chance: Chance) -> str:
    """A word with something odd in it, or a very long one."""
    inside, kind = word(chance), chance.random()
    if kind < 0.15:
        return inside * chance.choice((300, 3_000, 9_000))
    at = chance.randrange(len(inside) + 1)
    return inside[:at] + chance.choice(_ODD) + inside[at:]


def integer(chance: Chance) -> str:
    """No whole number, or one that is in no range: ranges here begin at 0 or more, and none reaches 2**63."""
    spelled = chance.choice(("NaN", "inf", "1e9", "one", "--", "½", "Ⅷ", "1,000", "1;2"))
    nines, fraction = "9" * chance.choice((20, 30, 400, 5_000)), f"{chance.randint(0, 99)}.{chance.randint(0, 99)}"
    negative, hexadecimal = f"-{chance.randint(1, 10**6)}", f"0x{chance.randint(0, 255):x}z"
    return chance.choice(("", " ", word(chance) + "x", negative, nines, fraction, hexadecimal, spelled))


def _quantity(chance: Chance, unit: str, foreign: str, spelled: Sequence[str]) -> str:
    """Nothing, another unit, less than nothing, more than there can be, or one of those that are spelled wrong."""
    number, nines = chance.randint(1, 100), "9" * chance.choice((20, 400))
    wrong = ("", word(chance) + "y", f"-{number}{unit}", f"{number}{foreign}", nines + unit, chance.choice(spelled))
    return chance.choice(wrong)


def duration(chance: Chance) -> str:
    """No duration, or none that may be waited for."""
    spelled = ("soon", "s", "1s-", "+-1s", "nan s", "infs", "1e999s", "10m10", "㎳", "1:30", "9:59")
    return _quantity(chance, chance.choice("smhd"), " fortnights", spelled)


def size(chance: Chance) -> str:
    """No size in bytes, or none that memory may have."""
    spelled = ("lots", "MB", "0MB", "1.2.3GB", "nanMB", "infGB", "1e999MB", "512", "0")
    return _quantity(chance, chance.choice(("MB", "GB")), "QB", spelled)


def path(chance: Chance) -> str:
    """A file that is not there or can't be."""
    below = f"{chance.choice(('/proc/nowhere', '/proc/version', '/dev/null'))}/{word(chance)}"
    return chance.choice((below, below, f"/{'x' * chance.choice((300, 5_000))}", f"/proc/nowhere/{odd(chance)}"))
