"""Hints of the command line, said in Python."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import amoro_core
from amoro_core.api import Client
from amoro_core.api.voices import CLIENT, OPTIONS, TABLE, told_in
from amoro_core.errors import TableBusy, TableNotFound

SOURCES = Path(amoro_core.__file__).parent.parent
#: Commands that Python has no call for; who is told of them needs a shell.
FOR_A_SHELL = {
    *("catalog", "config", "doctor", "group", "lease", "state", "token", "trash", "up", "user"),
    *("optimizer logs", "optimizer package", "optimizer run"),
    *("table blockers", "table renew", "table snapshots", "table unblock"),
}


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
            "Begin anew with amoro optimize TABLE if it is still wanted.",
            "Begin anew with client.optimize(TABLE) if it is still wanted.",
            "Begin anew with optimize(table) if it is still wanted.",
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


def test_every_public_method_of_a_client_tells_its_errors_so() -> None:
    public = [method for name, method in vars(Client).items() if callable(method) and not name.startswith("_")]
    assert len(public) > 10
    assert [method for method in public if not hasattr(method, "__wrapped__")] == []


def test_every_hint_is_understood() -> None:
    """A new command in a hint needs a call in `CLIENT`, or belongs to what a shell alone has; options likewise."""
    hints = {text for path in SOURCES.glob("amoro_c*/**/*.py") for text in _hints(ast.parse(path.read_text()))}
    assert len(hints) > 100
    said = " ".join(CLIENT.said(text) for text in hints)
    for_a_shell = {command for command in re.findall(r"\bamoro ([a-z|]+(?: [a-z]+)?)", said) if command}
    assert {one for one in for_a_shell if not {one, one.split(" ")[0], one.split("|")[0]} & FOR_A_SHELL} == set()
    assert set(re.findall(r"--[a-z][a-z-]+", said)) & OPTIONS.keys() == set()


def _hints(tree: ast.AST) -> Iterator[str]:
    """Texts of `hint=…` and `remedy = …`, with X for what is filled in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            yield from _texts(node.value)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {getattr(target, "id", getattr(target, "attr", "")) for target in targets}
            if names & {"hint", "remedy"} and node.value is not None:
                yield from _texts(node.value)


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in value.values)
    elif isinstance(value, ast.IfExp):
        yield from (*_texts(value.body), *_texts(value.orelse))
