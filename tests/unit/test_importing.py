"""Modules that are left out, and modules whose code runs when they are first used."""

import inspect
import py_compile
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from amoro_core.importing import absent, deferred

PACKAGE, MODULE = "package_of_this_test", "package_of_this_test.rare"


@pytest.fixture
def rare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that says in a file beside it how often its code has run."""
    package = tmp_path / PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text(f"import {MODULE} as rare\n")
    (package / "some.py").write_text(f"from {MODULE} import last\n")
    (package / "none.py").write_text(f"from {MODULE} import neither\n")
    file = package / "rare.py"
    file.write_text(
        '"""Rarely used."""\n'
        "import pathlib, sys, time\n"
        "with open(pathlib.Path(__file__).with_name('runs'), 'a') as runs:\n    runs.write('x')\n"
        "first = 1\n"
        "too_early = getattr(sys.modules[__name__], 'last', None)\n"
        "time.sleep(0.2)\n"
        "def last():\n    return first\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield file
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def runs(rare: Path) -> int:
    told = rare.with_name("runs")
    return len(told.read_text()) if told.exists() else 0


def test_the_code_runs_once_when_a_name_is_first_wanted(rare: Path) -> None:
    with deferred(MODULE):
        package = import_module(PACKAGE)
    assert runs(rare) == 0
    assert (package.rare.last(), package.rare.too_early, package.rare.first, runs(rare)) == (1, None, 1, 1)
    assert package.rare is sys.modules[MODULE]


def test_threads_that_want_it_at_once_all_get_it_whole(rare: Path) -> None:
    with deferred(MODULE):
        package = import_module(PACKAGE)
    ready = threading.Barrier(8)
    got: list[int] = []

    def use() -> None:
        ready.wait()
        got.append(package.rare.last())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (got, runs(rare)) == ([1] * 8, 1)


def test_who_asks_after_a_failure_gets_the_module(rare: Path) -> None:
    with deferred(MODULE):
        package = import_module(PACKAGE)
    whole = rare.read_text()
    rare.write_text("raise OSError('too many open files')\n")
    for _ in range(2):
        with pytest.raises(OSError, match="too many open files"):
            package.rare.last()
    rare.write_text(whole)
    assert package.rare.last() == 1


def test_a_module_without_source_is_imported_as_ever(rare: Path) -> None:
    py_compile.compile(str(rare), str(rare.with_suffix(".pyc")))
    rare.unlink()
    with deferred(MODULE):
        import_module(PACKAGE)
    assert runs(rare) == 1


def test_who_looks_at_all_modules_does_not_load_it(rare: Path) -> None:
    with deferred(MODULE):
        package = import_module(PACKAGE)
    assert not hasattr(package.rare, "__warningregistry__")
    assert not hasattr(package.rare, "__path__")
    assert Path(package.rare.__file__) == rare
    assert inspect.getsource(package.rare) == rare.read_text()
    assert runs(rare) == 0


def test_a_name_that_it_lacks_is_refused_as_by_every_module(rare: Path) -> None:
    with deferred(MODULE):
        package = import_module(PACKAGE)
    with pytest.raises(AttributeError, match=f"^module '{MODULE}' has no attribute 'neither'$"):
        _ = package.rare.neither
    with pytest.raises(ImportError, match="cannot import name 'neither'"):
        import_module(f"{PACKAGE}.none")


def test_names_of_it_can_be_imported(rare: Path) -> None:
    with deferred(MODULE):
        import_module(PACKAGE)
    assert (import_module(f"{PACKAGE}.some").last(), runs(rare)) == (1, 1)


def test_after_the_block_modules_are_imported_as_ever(rare: Path) -> None:
    with deferred(MODULE):
        pass
    import_module(PACKAGE)
    assert runs(rare) == 1


def test_a_module_that_is_not_installed_stays_so() -> None:
    with deferred("no_such_module"), pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_module'$"):
        import_module("no_such_module")


def test_an_installed_module_is_absent_within_the_block_alone(rare: Path) -> None:
    with absent(PACKAGE), pytest.raises(ModuleNotFoundError, match=f"^No module named '{PACKAGE}'$") as refused:
        import_module(PACKAGE)
    assert refused.value.name == PACKAGE
    assert import_module(PACKAGE).rare.first == 1
