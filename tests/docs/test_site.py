"""The site and its pages: generated from the code, built without a warning, self-contained."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pyiceberg
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalog.catalogs import pyiceberg_catalogs
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.properties import properties_of
from amoro_core.web.rest.openapi import description
from docs.diagrams import MACHINES, Machine, draw, words
from docs.reference_pages import pages, write
from tests.docs.session import DOCS, shown

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as it is built, with the pages that are generated."""
    source, place = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, source / "docs")
    shutil.copy(ROOT / "mkdocs.yml", source)
    write(source / "docs" / "reference")
    (source / "docs" / "openapi.json").write_text(json.dumps(description()), encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=240)
    assert (built.returncode, built.stdout) == (0, ""), built.stdout + built.stderr
    return place


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_edge_of_a_machine_is_drawn(machine: Machine) -> None:
    picture = draw(machine)
    edges = {
        (machine.one.get(status.value, status.value), machine.one.get(after.value, after.value))
        for (status, _), after in machine.transitions.items()
        if status != after
    }
    assert picture.count('marker-end="url(#end)"') == len(edges)
    leading = {words(event) for (status, event), after in machine.transitions.items() if status != after}
    assert {word for word in leading if f">{word}</tspan>" not in picture} == set()


def test_the_site_builds_without_a_warning_and_holds_every_page(site: Path) -> None:
    written = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    generated = {Path("reference", name).with_suffix(".html") for name in pages() if name.endswith(".md")}
    assert {path.relative_to(site) for path in site.rglob("*.html")} - {Path("404.html")} == written | generated


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]+src=\"?([^\" >]+)", text)
        loaded += re.findall(r"<link[^>]+rel=\"?(?:stylesheet|icon|preconnect|preload)[^>]*href=\"?([^\" >]+)", text)
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], page
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert re.findall(r"url\(\s*['\"]?https?:[^)]*|@import[^;]*https?:[^;]*", text) == []


#: Defaults as written on the page about planning.
WRITTEN = {"unset": "", "8 MB": str(8 << 20), "1,024": "1024", "24 h": str(24 * 3600 * 1000)}


def test_the_properties_of_copying_have_the_defaults_that_the_page_says() -> None:
    page = (DOCS / "explanation" / "planning.md").read_text(encoding="utf-8")
    section = page.partition("## Copied or encoded\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z.-]+)` \| ([^|]+) \|", section, re.MULTILINE)
    assert rows
    defaults = {one.key: one.default for one in properties_of(OptimizingConfig)}
    assert {f"self-optimizing.{key}": WRITTEN[default] for key, default in rows} == {
        key: default
        for key, default in defaults.items()
        if key.endswith(("coarse-interval", "max-row-groups")) or "row-group-merge" in key
    }


RECIPES = sorted((DOCS / "examples" / "catalogs").glob("*.yaml"))


def catalogs(recipe: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> list[CatalogConfig]:
    """The catalogs of a recipe, read as `.pyiceberg.yaml`."""
    (home / ".pyiceberg.yaml").write_text(recipe.read_text(encoding="utf-8"))
    monkeypatch.setenv("PYICEBERG_HOME", str(home))
    return pyiceberg_catalogs()


@cache
def known_texts() -> set[str]:
    """Every string constant of pyiceberg's catalogs and file systems."""
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
    configured = catalogs(recipe, tmp_path, monkeypatch)
    assert configured
    assert {key for catalog in configured for key, _ in catalog.properties} - known_texts() == set()
    assert [IcebergFormat().commits_refused(catalog) for catalog in configured] == [None] * len(configured)


@pytest.mark.parametrize(("name", "scheme"), [("s3", "s3"), ("gcs", "gs"), ("azure", "abfss")])
def test_arrow_accepts_the_properties_of_a_store(
    name: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for catalog in catalogs(DOCS / "examples" / "catalogs" / f"{name}.yaml", tmp_path, monkeypatch):
        properties = dict(catalog.properties)
        if "s3.role-arn" not in properties:  # Arrow requests the role at once
            PyArrowFileIO(properties).fs_by_scheme(scheme, "lake")


def test_every_recipe_is_shown() -> None:
    assert {recipe.name for recipe in RECIPES} <= {Path(name).name for _, name, _ in shown("file")}
