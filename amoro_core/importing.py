"""What other packages import where it is installed, and we need not: left out, or loaded when it is first used."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from threading import RLock
from types import ModuleType
from typing import Any


@contextmanager
def absent(*modules: str) -> Iterator[None]:
    """Make imports within the block behave as if the modules were not installed."""
    with _asked_first(_Absent(modules)):
        yield


@contextmanager
def deferred(*modules: str) -> Iterator[None]:
    """Let imports within the block find these modules, and run each one's code when a name in it is first wanted.

    It is of use where the whole module is imported (`import a.b as b`), not names of it. Unlike importlib's LazyLoader
    before Python 3.12.3 it may be used by several threads at once.
    """
    with _asked_first(_Deferred(modules)):
        yield


@contextmanager
def _asked_first(finder: "_Absent | _Deferred") -> Iterator[None]:
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Absent:
    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in self._modules:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


class _Deferred:
    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self._modules else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Later(fullname, spec.loader.path)
        return spec


class _Later(SourceFileLoader):
    """Leaves the running of a module's code to the first use of it."""

    def exec_module(self, module: ModuleType) -> None:
        lock = RLock()  # the module's own code may want its names, too
        begun = False

        def wanted(name: str) -> Any:
            nonlocal begun
            # What looks at all modules (warnings, doctest, `from module import …`) asks for names of this kind.
            if not (name.startswith("__") and name.endswith("__")):
                with lock:
                    if not begun:
                        begun = True
                        try:
                            super(_Later, self).exec_module(module)
                        except BaseException:
                            begun = False  # whoever asks next gets the error, too, or the module
                            raise
                if name in vars(module):
                    return vars(module)[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        vars(module)["__getattr__"] = wanted
