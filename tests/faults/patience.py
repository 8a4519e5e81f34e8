"""Requests that end as soon as it is clear that their answer never comes."""

from __future__ import annotations

import time

import pytest

from amoro_core.iceberg import sessions
from amoro_core.iceberg.limits import Watchdog
from tests.faults.proxy import Proxy

_LOOK_S = 0.02


def give_up_hanging(patch: pytest.MonkeyPatch, proxy: Proxy) -> None:
    """Let the time of a request be up once the proxy has left one without an answer that was sent since.

    A short limit would end others, too, where programs share the cores; they have the usual one.
    """

    class Impatient(Watchdog):
        def start(self) -> None:
            self._hung_before = proxy.hung
            super().start()

        def _watch(self) -> None:
            deadline = time.monotonic() + self._seconds
            while proxy.hung == self._hung_before and time.monotonic() < deadline:
                if self._over.wait(_LOOK_S):
                    return
            self._seconds = 0
            super()._watch()

    patch.setattr(sessions, "Watchdog", Impatient)
