"""Bad values, by what they stand for. None is a good one by chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

Chance = random.Random

#: Letters that a name should not bring along: of the terminal, of the text's direction, of no UTF-8, of quotes.
_ODD = (
    "\x1b[2J",
    "\x07",
    "\u202e",
    "\u200b",
    "\udcff",
    "'; DROP TABLE x; --",
    '"',
    "%s",
    "{0}",
    "\\",
    "\r",
    "\t",
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
    return chance.choice(
        (
            lambda: "",
            lambda: " ",
            lambda: word(chance) + "x",
            lambda: f"-{chance.randint(1, 10**6)}",
            lambda: "9" * chance.choice((20, 30, 400, 5_000)),
            lambda: f"{chance.randint(0, 99)}.{chance.randint(0, 99)}",
            lambda: f"0x{chance.randint(0, 255):x}z",
            lambda: chance.choice(("NaN", "inf", "1e9", "one", "--", "½", "Ⅷ", "1,000", "1;2")),
        )
    )()


def _quantity(chance: Chance, unit: str, foreign: str, odd: Sequence[str]) -> str:
    """Nothing, another unit, less than nothing, more than there can be, or one of the odd ones."""
    return chance.choice(
        (
            lambda: "",
            lambda: word(chance) + "y",
            lambda: f"-{chance.randint(1, 100)}{unit}",
            lambda: f"{chance.randint(1, 100)}{foreign}",
            lambda: "9" * chance.choice((20, 400)) + unit,
            lambda: chance.choice(odd),
        )
    )()


def duration(chance: Chance) -> str:
    """No duration, or none that may be waited for."""
    odd = ("soon", "s", "1s-", "+-1s", "nan s", "infs", "1e999s", "10m10", "㎳", "1:30", "9:59")
    return _quantity(chance, chance.choice("smhd"), " fortnights", odd)


def size(chance: Chance) -> str:
    """No size in bytes, or none that memory may have."""
    odd = ("lots", "MB", "0MB", "1.2.3GB", "nanMB", "infGB", "1e999MB", "512", "0")
    return _quantity(chance, chance.choice(("MB", "GB")), "QB", odd)


def choice(chance: Chance) -> str:
    """None of the words that an option takes."""
    return chance.choice((odd(chance), word(chance) + "zz", "", " ", "-", "None"))


def table(chance: Chance) -> str:
    """No name of a table, or one of a table that is not there."""
    return chance.choice(
        (
            lambda: "",
            lambda: chance.choice((".", "..", "...", "`", "``", "cat", "cat.", "cat.db.", ".cat.db.t", "cat..t", " ")),
            lambda: f"cat.`db.{word(chance)}",
            lambda: f"cat.db.{word(chance)}`",
            lambda: f"cat.db.{odd(chance)}",
            lambda: f"cat.{odd(chance)}.{word(chance)}",
            lambda: f"{odd(chance)}.db.{word(chance)}",
            lambda: f"cat.{'.'.join(word(chance) for _ in range(chance.choice((3, 30, 3_000))))}",
            lambda: f"cat.db.no_{word(chance)}",
            lambda: f"cat.db.t/../{word(chance)}",
        )
    )()


def identifier(chance: Chance) -> str:
    """No id of anything, or one that nothing has."""
    return chance.choice(
        (
            lambda: "",
            lambda: word(chance, 1, 5),
            lambda: f"{chance.getrandbits(64):016x}",
            lambda: odd(chance),
            lambda: f"../../{word(chance)}",
            lambda: f"{chance.getrandbits(48):012x}-{chance.randint(-5, 10**30)}",
            lambda: chance.choice(("%", "_" * 8, "*", "00000000-0000-0000-0000-000000000000", "0" * 400)),
        )
    )()


def name(chance: Chance) -> str:
    """No name that something may be given: empty, with blanks or odd letters, too long."""
    return chance.choice(
        (
            lambda: "",
            lambda: " ",
            lambda: f"{word(chance)} {word(chance)}",
            lambda: word(chance) + chance.choice(("\x1b[2J", "\x07", "\u202e", "\udcff", "\n", "\t", "\r")),
            lambda: word(chance, 8) * chance.choice((100, 2_000)),
        )
    )()


def unknown(chance: Chance) -> str:
    """A name that nothing has."""
    return chance.choice((lambda: f"no_{word(chance)}", lambda: odd(chance), lambda: name(chance)))()


def path(chance: Chance) -> str:
    """A file that is not there or can't be."""
    return chance.choice(
        (
            lambda: f"/proc/nowhere/{word(chance)}",
            lambda: f"/proc/version/{word(chance)}",
            lambda: f"/{'x' * chance.choice((300, 5_000))}",
            lambda: f"/proc/nowhere/{odd(chance)}",
            lambda: f"/dev/null/{word(chance)}",
        )
    )()


def address(chance: Chance) -> str:
    """No address of a coordinator, or one at which nobody answers."""
    return chance.choice(
        (
            lambda: "",
            lambda: word(chance),
            lambda: f"127.0.0.1:{chance.choice((0, 65_536, 99_999, 10**30, -1))}",
            lambda: f"127.0.0.1:{word(chance)}x",
            lambda: f"127.0.0.1:{chance.randint(1, 9)}",
            lambda: f"{chance.choice(('http', 'ftp', 'grpc+x'))}://127.0.0.1:9",
            lambda: f":{chance.randint(1, 9)}",
            lambda: f"[::1:{chance.randint(1, 9)}",
            lambda: f"{odd(chance)}:1261",
        )
    )()


def pair(chance: Chance) -> str:
    """No KEY=VALUE, or a key that is not known."""
    return chance.choice(
        (
            lambda: word(chance),
            lambda: f"={word(chance)}",
            lambda: "=",
            lambda: "",
            lambda: f"self-optimizing.{word(chance)}={odd(chance)}",
            lambda: f"max-instances={integer(chance)}",
            lambda: f"memory={size(chance)}",
        )
    )()


def snapshot(chance: Chance) -> str:
    """No id of a snapshot, or one that the table does not have."""
    return chance.choice((lambda: integer(chance), lambda: str(chance.randint(1, 10**6)), lambda: "9" * 19))()


Values = Callable[[Chance], str]


def catalog_pair(chance: Chance) -> str:
    """No KEY=VALUE of a catalog: what it stands for is malformed, or it is none."""
    return chance.choice(
        (
            lambda: word(chance),
            lambda: f"={word(chance)}",
            lambda: "=",
            lambda: "",
            lambda: f"type={word(chance)}_",
            lambda: f"table.self-optimizing.enabled={odd(chance)}",
            lambda: f"table.self-optimizing.target-size={integer(chance)}",
            lambda: f"table.self-optimizing.{word(chance)}x={word(chance)}",
            lambda: f"database-filter={chance.choice('([*?+')}{word(chance)}",
            lambda: f"py-io-impl={word(chance)}.{word(chance)}",
            lambda: f"py-catalog-impl={word(chance)}.{word(chance)}",
        )
    )()
