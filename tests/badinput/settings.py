"""Bad settings: amoro.yaml, the environment, pyiceberg's configuration and site files of catalogs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any

from amoro_core.bootstrap.settings import KEYS, Settings, variable_of
from tests.badinput import values
from tests.badinput.values import Chance, Values

_KINDS = {item.name: item.type for item in fields(Settings)}

#: Files that are no YAML, or none that holds keys and values.
_NO_YAML: tuple[Callable[[Chance], bytes], ...] = (
    lambda chance: b"\x00" * chance.randint(1, 100),
    lambda chance: b"\xff\xfe" + chance.randbytes(40),
    lambda chance: f"port: [{values.word(chance)}".encode(),
    lambda chance: b"port:\t1\n\t- 2",
    lambda chance: f"- {values.word(chance)}\n".encode(),
    lambda chance: values.word(chance).encode(),
    lambda chance: b"[" * chance.choice((100, 20_000)),
    lambda chance: b"{" * chance.choice((100, 20_000)),
    lambda chance: b"port: 1\n---\nport: 2\n",
    lambda chance: b"port: !!python/object/apply:os.system ['true']\n",
    lambda chance: b"port: *nothing\n",
    lambda chance: b"? [a, b]\n: c\n",
    lambda chance: b"port: 2001-02-30\n",
    lambda chance: _bomb(chance.choice((5, 12))).encode(),
    lambda chance: f"{chance.choice(list(KEYS))}: 1\n".encode() * 2,
)


def _bomb(levels: int) -> str:
    """A text whose aliases make it ten times as long with each level."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    return "\n".join([*lines, f"groups: *a{levels - 1}"])


def bad_file(chance: Chance) -> bytes:
    """An amoro.yaml with something wrong in it."""
    way = chance.random()
    if way < 0.3:
        return chance.choice(_NO_YAML)(chance)
    if way < 0.5:
        key = chance.choice((values.word(chance) + "x", chance.choice(list(KEYS)) + "s", "port.x", "self-optimizing"))
        return f"{key}: {values.word(chance)}\n".encode()
    key = chance.choice(list(KEYS))
    return f"{key}: {_bad_value(chance, key)}\n".encode("utf-8", "surrogateescape")


def _bad_value(chance: Chance, key: str) -> str:
    kind: Any = _KINDS[KEYS[key]]
    anything = ("{a: 1}", "[[]]", "[1, {}]", "~x: y: z", "[null]")
    if kind is int:
        return chance.choice((_quoted(values.integer(chance)), "-1", "1.5", "true", "99999999999999", *anything))
    if kind is timedelta:
        return chance.choice((_quoted(values.duration(chance)), "-1s", "true", "1.5", ".nan", *anything))
    if kind is bool:
        return chance.choice((_quoted(values.word(chance)), "7", "~", *anything))
    if kind is str:
        return chance.choice(("7", "true", "~", "2001-01-01", *anything))
    return chance.choice(("7", "true", _quoted(values.word(chance)), "{}", "[]", "[7]", *anything))


def _quoted(text: str) -> str:
    """The text in double quotes, as YAML has it."""
    odd = {letter: f"\\u{ord(letter):04x}" for letter in text if not letter.isprintable() or letter in '"\\'}
    return '"' + "".join(odd.get(letter, letter) for letter in text).replace("\udcff", "") + '"'


def bad_environment(chance: Chance) -> Mapping[str, str]:
    """A variable that says something wrong."""
    pools: dict[object, Values] = {int: values.integer, timedelta: values.duration, bool: values.size}
    key = chance.choice([key for key in KEYS if _KINDS[KEYS[key]] in pools])
    return {variable_of(key): pools[_KINDS[KEYS[key]]](chance) or "x"}


def bad_connection(chance: Chance) -> Mapping[str, str]:
    """A variable for clients that says something wrong."""
    token = chance.choice(("amo_no", "a b", "\x07", "é", "x" * 100_000, "\udcff", "a\nb", "{token}x"))
    said: tuple[dict[str, str], ...] = (
        {"AMORO_TOKEN": token},
        {"AMORO_ADDRESS": values.address(chance) or "x"},
        {"AMORO_CA_FILE": values.path(chance), "AMORO_ADDRESS": "127.0.0.1:9"},
        {"AMORO_HOME": values.path(chance)},
    )
    return chance.choice(said)


def bad_catalogs(chance: Chance) -> bytes:
    """A .pyiceberg.yaml with something wrong in the catalog `bad`."""
    way = chance.random()
    if way < 0.3:
        return chance.choice(_NO_YAML)(chance)
    said = chance.choice(
        (
            "7",
            "[]",
            "x",
            "{type: nope}",
            "{type: 7}",
            "{type: sql}",
            "{type: sql, uri: 7}",
            "{type: sql, uri: 'nope://x'}",
            "{type: sql, uri: 'sqlite:////nowhere/at/all.db'}",
            "{type: rest}",
            "{type: rest, uri: 'ftp://127.0.0.1'}",
            "{type: rest, uri: 'http://127.0.0.1:9'}",
            "{type: rest, uri: 'http://[::1'}",
            "{type: rest, uri: 'http://127.0.0.1:9', ssl: {cabundle: /nowhere}}",
            "{type: hive, uri: 'thrift://127.0.0.1:9'}",
            "{type: hive, uri: nope}",
            "{type: sql, uri: 'sqlite:///{directory}', warehouse: 7}",
            "{type: sql, uri: 'sqlite:///{directory}/catalog.db', table.self-optimizing.enabled: maybe}",
            "{py-catalog-impl: os.path}",
            "{type: sql, uri: 'sqlite:///{directory}/catalog.db', py-io-impl: os.path}",
        )
    )
    return f"catalog:\n  bad: {said}\n".encode()


def bad_site(chance: Chance) -> tuple[str, bytes]:
    """A file for `catalog add --site`, with its name."""
    word = values.word(chance)
    return chance.choice(
        (
            ("core-site.xml", b"<configuration><property>"),
            ("core-site.xml", b'<!DOCTYPE x [<!ENTITY a "b">]><configuration>&a;</configuration>'),
            ("core-site.xml", b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><configuration/>'),
            ("core-site.xml", b"<a>" * chance.choice((10, 50_000))),
            ("core-site.xml", f"<{word}/>".encode()),
            ("core-site.xml", chance.randbytes(200)),
            ("core-site.xml", b""),
            ("site.yaml", b"- a\n- b\n"),
            ("site.yaml", b"a: {b: {c: [1, 2]}}\n"),
            ("site.yaml", b"\xff\xfe\x00"),
            ("site.yaml", _bomb(12).encode()),
            ("site.yaml", b"a: 1\na: 2\n"),
            ("site.yaml", b"[" * 20_000),
            (f"{word}.txt", f"{word}={word}".encode()),
            (f"{word}.json", b"{"),
        )
    )
