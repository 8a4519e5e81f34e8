from __future__ import annotations

from tests.model.conftest import quick_path

__all__ = ["quick_path"]
