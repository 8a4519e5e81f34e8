"""Words, and words with something odd in them."""

from __future__ import annotations

import random

Chance = random.Random

#: Letters that a name should not bring along: of the terminal, of the text's direction, of no UTF-8, of quotes.
_ODD = (
    *("\x1b[2J", "\x07", "\u202e", "\u200b", "\udcff", "'; DROP TABLE x; --", '"', "%s", "{0}", "\\", "\r", "\t"),
    "é" * 200,
)


def word(chance: Chance) -> str:
    """Letters and digits."""
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789_", k=chance.randint(1, 12)))


def odd(chance: Chance) -> str:
    """A word with something odd in it, or a very long one."""
    inside, kind = word(chance), chance.random()
    if kind < 0.15:
        return inside * chance.choice((300, 3_000, 9_000))
    at = chance.randrange(len(inside) + 1)
    return inside[:at] + chance.choice(_ODD) + inside[at:]
