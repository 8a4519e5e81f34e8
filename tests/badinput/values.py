"""Bad values, by what they stand for. None is a good one by chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

Chance = random.Random
Values = Callable[[Chance], str]

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


def choice(chance: Chance) -> str:
    """None of the words that an option takes."""
    return chance.choice((odd(chance), word(chance) + "zz", "", " ", "-", "None"))


def table(chance: Chance) -> str:
    """No name of a table, or one of a table that is not there."""
    spelled = chance.choice((".", "..", "...", "`", "``", "cat", "cat.", "cat.db.", ".cat.db.t", "cat..t", " ", ""))
    parts = ".".join(word(chance) for _ in range(chance.choice((3, 30, 3_000))))
    one, strange = word(chance), odd(chance)
    names = (f"cat.`db.{one}", f"cat.db.{one}`", f"cat.db.no_{one}", f"cat.db.t/../{one}", f"cat.{parts}")
    return chance.choice((spelled, *names, f"cat.db.{strange}", f"cat.{strange}.{one}", f"{strange}.db.{one}"))


def identifier(chance: Chance) -> str:
    """No id of anything, or one that nothing has."""
    spelled = chance.choice(("", "%", "_" * 8, "*", "00000000-0000-0000-0000-000000000000", "0" * 400))
    prefix, task = f"{chance.getrandbits(64):016x}", f"{chance.getrandbits(48):012x}-{chance.randint(-5, 10**30)}"
    return chance.choice((spelled, word(chance, 1, 5), prefix, task, odd(chance), f"../../{word(chance)}"))


def name(chance: Chance) -> str:
    """No name that something may be given: empty, with blanks or odd letters, too long."""
    strange = word(chance) + chance.choice(("\x1b[2J", "\x07", "\u202e", "\udcff", "\n", "\t", "\r"))
    return chance.choice(
        ("", " ", f"{word(chance)} {word(chance)}", strange, word(chance, 8) * chance.choice((100, 2_000)))
    )


def unknown(chance: Chance) -> str:
    """A name that nothing has."""
    return chance.choice((f"no_{word(chance)}", odd(chance), name(chance)))


def path(chance: Chance) -> str:
    """A file that is not there or can't be."""
    below = f"{chance.choice(('/proc/nowhere', '/proc/version', '/dev/null'))}/{word(chance)}"
    return chance.choice((below, below, f"/{'x' * chance.choice((300, 5_000))}", f"/proc/nowhere/{odd(chance)}"))


def address(chance: Chance) -> str:
    """No address of a coordinator, or one at which nobody answers."""
    number, scheme = chance.randint(1, 9), chance.choice(("http", "ftp", "grpc+x"))
    ports = (f"127.0.0.1:{chance.choice((0, 65_536, 99_999, 10**30, -1))}", f"127.0.0.1:{word(chance)}x")
    wrong = ("", word(chance), f"{scheme}://127.0.0.1:9", f":{number}", f"[::1:{number}", f"{odd(chance)}:1261")
    return chance.choice((*wrong, *ports, f"127.0.0.1:{number}"))


def pair(chance: Chance) -> str:
    """No KEY=VALUE, or a key that is not known."""
    pairs = (
        f"self-optimizing.{word(chance)}={odd(chance)}",
        f"max-instances={integer(chance)}",
        f"memory={size(chance)}",
    )
    return chance.choice((word(chance), f"={word(chance)}", "=", "", *pairs))


def snapshot(chance: Chance) -> str:
    """No id of a snapshot, or one that the table does not have."""
    return chance.choice((integer(chance), str(chance.randint(1, 10**6)), "9" * 19))


def catalog_pair(chance: Chance) -> str:
    """No KEY=VALUE of a catalog: what it stands for is malformed, or it is none."""
    key, value = chance.choice(
        (
            ("type", f"{word(chance)}_"),
            ("table.self-optimizing.enabled", odd(chance)),
            ("table.self-optimizing.target-size", integer(chance)),
            (f"table.self-optimizing.{word(chance)}x", word(chance)),
            ("database-filter", f"{chance.choice('([*?+')}{word(chance)}"),
            ("py-io-impl", f"{word(chance)}.{word(chance)}"),
            ("py-catalog-impl", f"{word(chance)}.{word(chance)}"),
        )
    )
    return chance.choice((word(chance), f"={word(chance)}", "=", "", *[f"{key}={value}"] * 7))
