"""How long a client waits for answers that a script decides about."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.proxy import Proxy


@dataclass(frozen=True, slots=True)
class Patience:
    """In place of `limits.Limits`: short only while the proxy has an answer ahead that never comes.

    Any other answer may take long where programs share the cores.
    """

    proxy: Proxy
    connect_s: float = 10.0
    told: str = "there was no complete answer in time"

    @property
    def whole_s(self) -> float:
        """Asked when a request begins."""
        return 5.0 if self.proxy.will_hang else 60.0
