"""What the page of planning says of copying: properties, and figures of receipts and plans, by their names."""

import re
from pathlib import Path

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.properties import properties_of
from amoro_core.protocol import admin_pb2 as pb

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "explanation" / "planning.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("## Copied or encoded\n")[2].partition("\n## ")[0]
#: Defaults as the page writes them.
WRITTEN = {"unset": "", "8 MB": str(8 << 20), "1,024": "1024", "24 h": str(24 * 3600 * 1000)}


def test_the_properties_of_copying_have_the_defaults_that_the_page_says() -> None:
    rows = re.findall(r"^\| `([a-z.-]+)` \| ([^|]+) \|", SECTION, re.MULTILINE)
    defaults = {one.key: one.default for one in properties_of(OptimizingConfig)}
    assert {f"self-optimizing.{key}": WRITTEN[default] for key, default in rows} == {
        key: default
        for key, default in defaults.items()
        if key.endswith(("coarse-interval", "max-row-groups")) or "row-group-merge" in key
    }


def test_the_page_names_what_plans_and_receipts_tell() -> None:
    assert "`copying`" in SECTION
    assert "copying" in pb.Plan.DESCRIPTOR.fields_by_name
    assert "`encoded`" in SECTION
    assert "encoded" in pb.Receipt.DESCRIPTOR.fields_by_name
