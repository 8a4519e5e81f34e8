import pytest

from amoro_core.model.texts import cut, is_text, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders →✓ 客 é", "orders →✓ 客 é"),
        ("a\nb\tc\x1b[31m\x7f\x9b", r"a\nb\tc\x1b[31m\x7f\x9b"),
        ("evil\u202egnp.exe\u2066\u200f\u061c", r"evil\u202egnp.exe\u2066\u200f\u061c"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("line\u2028paragraph\u2029next\x85", r"line\u2028paragraph\u2029next\x85"),
        ("\udcff", r"\udcff"),
        ("tag\U000e0041", r"tag\U000e0041"),
    ],
)
def test_what_is_not_what_it_looks_like_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_bytes_that_are_no_utf_8_are_no_text() -> None:
    assert is_text("客 \x00")
    assert not is_text(b"a\xff".decode(errors="surrogateescape"))


def test_a_text_is_cut_where_it_would_be_too_long_on_the_wire() -> None:
    assert cut("x" * 100, 100) == "x" * 100
    assert cut("x" * 101, 100) == "x" * 61 + " … (cut: 101 characters in all)"
    assert cut("é%" * 12, 108) == "é%" * 12
    assert cut("é%" * 20, 108) == "é%" * 7 + "é … (cut: 40 characters in all)"
    assert cut("\udcff", 100) == "\\udcff"
