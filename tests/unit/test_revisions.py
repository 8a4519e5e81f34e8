"""Revisions grow with the changes of their subjects."""

from amoro_core.revisions import Revisions


def test_a_change_moves_its_subject_and_its_topic_alone() -> None:
    known = Revisions()
    known.note([("tables", "1"), ("tables", "2"), ("groups", "fast")])
    before = {"one": known.of("tables", "1"), "two": known.of("tables", "2"), "groups": known.of("groups")}
    all_tables = known.of("tables")
    known.note([("tables", "2")])
    assert known.of("tables", "1") == before["one"]
    assert known.of("groups") == before["groups"]
    assert known.of("tables", "2") > before["two"]
    assert known.of("tables") > all_tables


def test_what_never_changed_has_the_first_revision() -> None:
    assert Revisions(start=70).of("tables") == 70
    assert Revisions(start=70).of("tables", "1") == 70


def test_a_forgotten_subject_counts_as_changed() -> None:
    known = Revisions(most=2)
    known.note([("tables", "1")])
    before = known.of("tables", "1")
    known.note([("tables", "2")])
    known.note([("tables", "3")])
    assert known.of("tables", "1") >= before
    assert known.of("tables", "never") >= before
    assert known.of("tables", "1") < known.of("tables", "2")


def test_a_subject_that_changed_again_is_forgotten_last() -> None:
    known = Revisions(most=2)
    for subject in ("1", "2", "1", "3"):
        known.note([("tables", subject)])
    assert known.of("tables", "1") == 3
    assert known.of("tables", "2") == 2
