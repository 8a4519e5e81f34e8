"""Spark's daemon of Python workers, which makes them cheap: they find the engine loaded, and do no work in vain.

What is done here concerns the daemon's process and the workers that it forks, nothing else. Figures: docs/spark.md.
"""

import gc
from collections.abc import Callable
from zipimport import zipimporter

from pyspark.daemon import manager

import amoro_optimizer.backends.spark.worker

__all__ = ["amoro_optimizer"]

_manage: Callable[[], None] = manager


def _keep(importer: zipimporter) -> None:
    """What an importer does when caches are to be invalidated: nothing, as Spark's archives stay as they are."""


if __name__ == "__main__":
    # Before each task a worker has caches of importers invalidated; up to Python 3.12 those of archives, of which
    # Spark's path has several, then read their whole directory again: that alone takes longer than a small rewrite.
    zipimporter.invalidate_caches = _keep  # type: ignore[method-assign, assignment]  # a class of the interpreter's
    # After each task it collects garbage: all that is loaded here need not be looked at.
    gc.freeze()
    _manage()
