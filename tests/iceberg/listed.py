"""Requests to catalogs that end early."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from amoro_core.iceberg.catalog.timeouts import limit_requests, limits


@contextmanager
def limited_requests(seconds: float) -> Iterator[None]:
    """Requests to catalogs end after this time."""
    before = limits().whole_s
    limit_requests(timedelta(seconds=seconds))
    try:
        yield
    finally:
        limit_requests(timedelta(seconds=before))
