"""Each mistake of `tests/mutants/named.toml` can still be made, and the page says that a test tells of it."""

from tests.mutants.named import PAGE, ROOT, read_named


def test_each_mutant_by_name_can_be_made_and_was_killed() -> None:
    named = read_named()
    page = PAGE.read_text()

    assert len({one.name for one in named}) == len(named) > 15
    for one in named:
        assert ((ROOT / one.file).read_text().count(one.was), one.was != one.becomes) == (1, True), one.name
        missing = [test for test in one.tests if not (ROOT / test.partition("::")[0]).is_file()]
        assert not missing, one.name
        assert f"| {one.name} | `{one.file}` |" in page
    assert "**survived**" not in page
