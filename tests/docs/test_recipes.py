"""The recipes for catalogs and stores: pyiceberg knows every key, and we take every catalog.

No cloud is asked: what a key does there is pyiceberg's and Arrow's word.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pyiceberg
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalogs import pyiceberg_catalogs
from amoro_core.model.processes import CatalogConfig
from tests.docs.session import DOCS

RECIPES = sorted((DOCS / "examples" / "catalogs").glob("*.yaml"))


def catalogs(recipe: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[CatalogConfig]:
    """Those of a recipe, as they are read from where it says that it is to be put."""
    (home / ".pyiceberg.yaml").write_text(recipe.read_text(encoding="utf-8"))
    monkeypatch.setenv("PYICEBERG_HOME", str(home))
    return pyiceberg_catalogs()


def known_texts() -> set[str]:
    """Every text that stands in the code of pyiceberg's catalogs and file systems."""
    root = Path(pyiceberg.__file__).parent
    files = [*(root / "catalog").rglob("*.py"), *(root / "io").rglob("*.py"), root / "utils" / "properties.py"]
    return {
        node.value
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_every_key_is_pyicebergs_and_every_catalog_may_commit(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = catalogs(recipe, tmp_path, monkeypatch)
    assert found
    assert {key for catalog in found for key, _ in catalog.properties} - known_texts() == set()
    assert [IcebergFormat().commits_refused(catalog) for catalog in found] == [None] * len(found)


@pytest.mark.parametrize(("name", "scheme"), [("s3", "s3"), ("gcs", "gs"), ("azure", "abfss")])
def test_arrow_takes_what_a_store_is_reached_by(
    name: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for catalog in catalogs(DOCS / "examples" / "catalogs" / f"{name}.yaml", tmp_path, monkeypatch):
        properties = dict(catalog.properties)
        if "s3.role-arn" not in properties:  # the role is asked for at once
            PyArrowFileIO(properties).fs_by_scheme(scheme, "lake")


def test_every_recipe_is_shown() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    assert [recipe.name for recipe in RECIPES if f'"examples/catalogs/{recipe.name}"' not in pages] == []
