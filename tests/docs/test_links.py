"""Relative links of Markdown files lead to files of a plain checkout, not to pages that `make docs` generates."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Generated below docs/, as .gitignore has it.
GENERATED = [ROOT / line[1:] for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("/docs/")]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "tests").rglob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


def is_generated(path: Path) -> bool:
    return any(path == each or each in path.parents for each in GENERATED)


@pytest.mark.parametrize("page", [page for page in PAGES if not is_generated(page)], ids=lambda page: page.stem)
def test_every_relative_link_leads_to_a_committed_file(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = [(page.parent / link).resolve() for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]
    assert [str(target) for target in targets if is_generated(target) or not target.exists()] == []
