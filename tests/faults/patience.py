"""How long a client waits for answers that a script decides about."""

from __future__ import annotations

from amoro_core.iceberg.limits import Limits
from tests.faults.proxy import Proxy

#: What an answer that never comes takes. Any other may take long where programs share the cores.
HANGING_S = 5.0


class Patience(Limits):
    """Limits that are short only while the proxy has an answer ahead that never comes."""

    def __init__(self, proxy: Proxy) -> None:
        object.__setattr__(self, "connect_s", 10.0)
        object.__setattr__(self, "proxy", proxy)

    @property
    def whole_s(self) -> float:  # type: ignore[override]  # a constant there
        """Asked when a request begins."""
        proxy: Proxy = self.__dict__["proxy"]
        return HANGING_S if proxy.will_hang else 60.0
