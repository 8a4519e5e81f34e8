"""Hints of the command line, said in Python."""

import pytest

from amoro_core.api.voices import CLIENT, TABLE, told_in
from amoro_core.errors import TableBusy, TableNotFound


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
