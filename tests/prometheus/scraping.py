"""A coordinator's services that are scraped each minute of a clock set by hand."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from amoro_core.actions.registry import Actions
from amoro_core.model import metrics
from amoro_core.model.alert_rules import ActiveAlert
from amoro_core.services.metrics import ConditionService, MeteringService
from tests.prometheus.promtool import Scrape
from tests.services.world import START, World

TARGET = {"instance": "127.0.0.1:1630", "job": "amoro"}


class Prometheus:
    """What the job `amoro` of a Prometheus has of a coordinator: one scrape for each minute that passed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scrapes: list[Scrape] = []
        self.raised: list[ActiveAlert] = []  # what the coordinator itself raises after the last scrape
        self._start()

    def _start(self) -> None:
        world, names = self.world, Actions().names
        self._metering = MeteringService(world.store, lambda: world.now, "7", names, world.meters)
        self._conditions = ConditionService(self._metering.meters.samples, lambda: world.now)
        self._runs = True

    def stop(self) -> None:
        """The coordinator answers no more."""
        self._runs = False

    def restart(self) -> None:
        """Another coordinator answers, on the same state."""
        self.stop()
        self.world.restart()
        self._start()

    def watch(self, minutes: int) -> None:
        """Scrape now, and let a minute pass: so often."""
        for _ in range(minutes):
            self.scrapes.append({**_named("up", 1.0 if self._runs else 0.0), **(self._scrape() if self._runs else {})})
            held, now = self._conditions.look() if self._runs else ((), self.world.now)
            self.raised = [one for one in held if one.is_raised(now)]
            self.world.later(60)

    def _scrape(self) -> dict[str, float]:
        told: dict[str, float] = {}
        for family in text_string_to_metric_families(self._metering.meters.exposed().decode()):
            for sample in family.samples:
                # promtool's clock begins at 0.
                shift = START.timestamp() if sample.name == metrics.CERTIFICATE_END.name else 0
                told |= _named(sample.name, sample.value - shift, **sample.labels)
        return told


def _named(name: str, value: float, **labels: str) -> dict[str, float]:
    pairs = ",".join(f'{key}="{text}"' for key, text in sorted({**labels, **TARGET}.items()))
    return {f"{name}{{{pairs}}}": value}
