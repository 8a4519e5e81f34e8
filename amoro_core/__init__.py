"""The coordinator of a lakehouse self-optimizing service for Apache Iceberg tables, and its Python API."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amoro_core.api import connect, optimize, plan, verify

__all__ = ["connect", "optimize", "plan", "verify"]


def __getattr__(name: str) -> object:
    # Loaded when it is used: the command line imports this package, and pyarrow and gRPC cost a second.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("amoro_core.api"), name)
