"""What users look up: the page of errors, the words of refusals, and command-line hints as calls of the Python API."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import amoro_core
from amoro_core import errors
from amoro_core.api.client import CLIENT, TABLE, told_in
from amoro_core.errors import AmoroError, TableBusy, TableNotFound
from amoro_core.model.refusal_reasons import REFUSALS

DOCS = Path(__file__).parents[2] / "docs"


def test_pages_are_those_that_the_code_makes() -> None:
    for name, page in runpy.run_path(str(DOCS / "generate.py"))["PAGES"].items():
        assert (DOCS / name).read_text(encoding="utf-8") == page(), "run: python docs/generate.py"


def test_each_error_says_what_to_do_and_has_a_code_of_its_own_in_the_block_of_its_exit_status() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AmoroError)]
    blocks = {1: "1", 2: "2", 3: "3", 4: "4", 5: "5", 6: "6", 7: "7", 124: "8"}
    assert len({kind.code for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert re.fullmatch(rf"AMORO-{blocks[kind.exit_status]}\d\d\d", kind.code), kind
        assert kind.__dict__["remedy"].endswith("."), kind


def test_every_word_of_a_refusal_that_the_code_says_is_explained_and_no_other() -> None:
    sources = Path(amoro_core.__file__).parent.rglob("*.py")
    said = {word for path in sources for word in re.findall(r'\breason="([a-z-]+)"', path.read_text(encoding="utf-8"))}
    assert said == set(REFUSALS)


@pytest.mark.parametrize(
    ("hint", "for_client", "for_table"),
    [
        (
            "Wait for it: amoro process show 0199-a",
            "Wait for it: client.process('0199-a')",
            "Wait for it: amoro process show 0199-a",
        ),
        ("See: amoro table list.", "See: client.tables().", "See: amoro table list."),
        (
            "See: amoro table list --catalog cat",
            "See: client.tables(catalog='cat')",
            "See: amoro table list --catalog cat",
        ),
        (
            "Start it again with amoro optimize TABLE if it is still wanted.",
            "Start it again with client.optimize(TABLE) if it is still wanted.",
            "Start it again with optimize(table) if it is still wanted.",
        ),
        (
            "Nothing was changed. Run: amoro optimize 'cat.db.`two words`' --type full --force",
            "Nothing was changed. Run: client.optimize('cat.db.`two words`', type='full', force=True)",
            "Nothing was changed. Run: optimize(table, type='full', force=True)",
        ),
        (
            "Why, for each partition: amoro plan cat.db.t --explain",
            "Why, for each partition: client.plan('cat.db.t').explain()",
            "Why, for each partition: plan(table).explain()",
        ),
        (
            "Switch it on with `amoro table enable cat.db.`a b`` or by the table's property.",
            "Switch it on with `client.enable('cat.db.`a b`')` or by the table's property.",
            "Switch it on with `amoro table enable cat.db.`a b`` or by the table's property.",
        ),
        (
            """Run: amoro optimize cat.db.t --where 'part = '"'"'a'"'"''""",
            """Run: client.optimize('cat.db.t', where="part = 'a'")""",
            """Run: optimize(table, where="part = 'a'")""",
        ),
        ("Ask for that type: --type full --force.", *["Ask for that type: type='full', force=True."] * 2),
        (
            "Start one with: amoro up. Or name another with --address or --home.",
            *["Start one with: amoro up. Or name another with address or home."] * 2,
        ),
        ("See the command's --help.", *["See the help() of what was called."] * 2),
        ("Use --token-file-of-mine, amoro process showing, amoro process|task list", *[None] * 2),
    ],
)  # fmt: skip
def test_commands_are_calls_and_options_parameters(hint: str, for_client: str | None, for_table: str | None) -> None:
    assert (CLIENT.said(hint), TABLE.said(hint)) == (for_client or hint, for_table or hint)
    for voice in (CLIENT, TABLE):
        assert voice.said(voice.said(hint)) == voice.said(hint)


def test_an_error_has_its_hint_and_the_remedy_of_its_kind_in_the_voice_and_shows_it_once() -> None:
    @told_in(CLIENT)
    @told_in(CLIENT)
    def fail(error: Exception) -> None:
        raise error

    for error, hint in (
        (TableBusy("busy", hint="Wait for it: amoro process show 0199"), "Wait for it: client.process('0199')"),
        (TableNotFound("no"), "See: client.tables()."),
    ):
        with pytest.raises(type(error)) as raised:
            fail(error)
        assert raised.value is error
        assert (error.hint, error.__notes__, str(error)) == (hint, [f"Hint: {hint}"], error.message)
