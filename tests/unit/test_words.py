"""Product and tests speak of their subjects in the terms of the field: words that stood for these do not come back."""

import re
from pathlib import Path

from tests.unit.test_shape import FILES, ROOT

#: What was said, and the term that says it now.
TERMS = {
    r"wish(es|ed|ing)?": "request, target",
    r"judg(e|es|ed|ing|ement|ements)": "evaluate, verdict",
    r"take_up|look_later": "follow the properties, postpone the refresh",
    r"hand(s|ed|ing)?[ _-]outs?": "schedule",
    r"hands?": "optimizer, thread",
}


def test_words_that_have_a_term_are_not_used() -> None:
    found = []
    others = [*(ROOT / "proto").rglob("*.proto"), *(ROOT / "tests").rglob("*.py")]
    for path in (*FILES, *(file.relative_to(ROOT) for file in others if file != Path(__file__))):
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1):
            said = re.sub(r"by hand|\"handed out *\b", "", line)  # the label of a time, which stays
            for word, term in TERMS.items():
                if re.search(rf"(?<![a-zA-Z])({word})(?![a-zA-Z])", said, re.IGNORECASE):
                    found.append(f"{path}:{number}: {line.strip()} ({term})")
    assert found == []
