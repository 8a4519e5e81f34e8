"""Tags made while an expiry runs through a REST catalog: none is lost for good, and Spark reads its rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from . import random_tags
from .catalogs import SharedCatalog

#: `make prove` goes on with other seeds.
TAGS = 15


def test_each_tag_is_there_with_its_rows(catalog: SharedCatalog, tmp_path: Path) -> None:
    totals: Counter[str] = Counter()
    random_tags.run(catalog, tmp_path / "state", 1, TAGS, totals)
    assert totals["tags made"] > TAGS / 2
    assert totals["lost and brought back"] >= 2
