"""What must be installed for Spark, who pays for it, and what is said where it is missing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amoro_core import errors
from amoro_core.errors import AmoroError, InvalidSettings
from amoro_optimizer.backends.spark.application import FIXED, open_context
from amoro_optimizer.backends.spark.driver import failure_of

ROOT = Path(__file__).parents[2]
RUN = ("optimizer", "run", "--backend", "spark", "--address", "127.0.0.1:1", "--token-file", "token")


def python(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (directory / "token").write_text("secret")
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        encoding="utf-8",
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": str(ROOT), **environment},
        timeout=120,
        check=False,
    )


def modules_that_import_pyspark() -> set[str]:
    found = set()
    for path in (
        path for name in ("amoro_core", "amoro_optimizer", "amoro_cli") for path in (ROOT / name).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] in ("pyspark", "py4j") for name in names):
                found.add(str(path.parent.relative_to(ROOT)))
    return found


def test_pyspark_is_imported_in_the_spark_backend_only() -> None:
    assert modules_that_import_pyspark() == {"amoro_optimizer/backends/spark"}


def test_everything_else_loads_without_pyspark(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "import amoro_core.__main__, amoro_core.launcher, amoro_optimizer.backends.standalone"
    )
    done = python(tmp_path, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_pyspark_the_extra_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None\nfrom amoro_core.__main__ import main\nmain()"
    done = python(tmp_path, "-c", code, *RUN)
    assert done.returncode == 2
    assert done.stderr == (
        "Error: PySpark is not installed [AMORO-2002]\n"
        "Hint: Install it with: pip install 'amoro[spark]'; it needs Java 17 too.\n"
    )


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({"PATH": ""}, "there is none on the PATH"),
        ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME=/nowhere has no bin/java"),
    ],
    ids=["nothing on the PATH", "wrong JAVA_HOME"],
)
def test_without_java_it_says_what_to_install(tmp_path: Path, environment: dict[str, str], missing: str) -> None:
    done = python(tmp_path, "-m", "amoro_core", *RUN, **environment)
    assert done.returncode == 2
    assert f"Error: Spark needs Java, and {missing} [AMORO-2002]\n" in done.stderr
    assert "Hint: Install JDK 17" in done.stderr


@pytest.mark.parametrize("key", FIXED)
def test_settings_that_would_have_spark_repeat_or_copy_work_are_refused(key: str) -> None:
    with pytest.raises(InvalidSettings, match=rf"^an optimizer on Spark needs {key}={FIXED[key]}$"):
        open_context("local[1]", {key: "7"})


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)])
def test_an_error_comes_back_as_the_class_of_its_code(kind: type) -> None:
    if issubclass(kind, AmoroError):
        made = failure_of(kind.code, "it broke")
        assert (type(made), made.message) == (kind, "it broke")
