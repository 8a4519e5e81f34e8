"""Spark's daemon of Python workers with the engine preloaded, so that workers are cheap and do no needless work.

This affects only the daemon's process and the workers that it forks. Figures: docs/spark.md.
"""

import gc
from collections.abc import Callable
from zipimport import zipimporter

from pyspark.daemon import manager

import amoro_optimizer.backends.spark.worker

__all__ = ["amoro_optimizer"]

_manage: Callable[[], None] = manager


def _keep(importer: zipimporter) -> None:
    """Replaces the invalidation of an importer's caches by nothing: Spark's archives do not change."""


if __name__ == "__main__":
    # Before each task a worker invalidates importers' caches; up to Python 3.12, zip importers, of which Spark's path
    # has several, then read their whole directory again, which alone takes longer than a small rewrite.
    zipimporter.invalidate_caches = _keep  # type: ignore[method-assign, assignment]  # a class of the interpreter's
    # After each task it collects garbage: exclude everything loaded here.
    gc.freeze()
    _manage()
