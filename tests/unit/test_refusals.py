"""The words of REFUSED(word): those that the code says are those that are explained."""

import re
from pathlib import Path

import amoro_core
from amoro_core.model.refusals import REFUSALS


def test_every_word_that_the_code_says_is_explained_and_no_other() -> None:
    said = {
        word
        for path in Path(amoro_core.__file__).parent.rglob("*.py")
        for word in re.findall(r'\breason="([a-z-]+)"', path.read_text(encoding="utf-8"))
    }
    assert said == set(REFUSALS)
    assert list(REFUSALS) == sorted(REFUSALS)
