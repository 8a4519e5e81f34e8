"""Rounds of optimizing in which coordinator and optimizer are killed at failpoints and at any moment."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from amoro_core import failpoints
from tests.acceptance.processes import PATIENCE_S
from tests.kills.nursery import Nursery
from tests.kills.site import PROPERTIES, Site

OF_OPTIMIZER = sorted(name for name in failpoints.NAMES if name.startswith("task."))
#: Nobody cancels anything here, and no rewrite removes files after its work.
OF_COORDINATOR = sorted(
    name for name in failpoints.NAMES if not name.startswith(("task.", "cancel.", "clear.", "sweep."))
)
#: Reached only by the next coordinator after a death there.
FOLLOWING = {"commit.after_intent": "commit.before_resend"}
#: Silence counts only after so long, so that a busy machine does not look like a death.
SILENCE = "4s"
#: More deaths of its optimizers than that make a task poisoned, which ends a process as it should.
MOST_OPTIMIZERS_LOST = 2
ANY_MOMENT = "any moment"


class Rounds:
    """Counts each kill by where it struck, as far as the failpoint that was armed says."""

    def __init__(
        self, site: Site, chance: random.Random, totals: Counter[str], kinds: Sequence[str] = ("full",)
    ) -> None:
        """`kinds` are asked for by chance."""
        self._site = site
        self._kinds = kinds
        self._chance = chance
        self._totals = totals
        self._armed = {"coordinator": "", "optimizer": ""}
        self._lost = 0
        self.kills = 0

    def run(self, kills: int) -> None:
        """Round after round until so many processes were killed."""
        self._site.start_coordinator()
        self._site.wait(lambda: self._site.is_listening, "the coordinator listens")
        self._site.start_optimizer()
        while self.kills < kills:
            self._one()

    def _one(self) -> None:
        """Write, ask for optimizing until a process is planned, write again, kill by chance until it has ended."""
        site, chance = self._site, self._chance
        known, self._lost = len(site.processes()), 0
        for _ in range(chance.randrange(1, 4)):
            site.write(chance, alone=True)
        asked = False
        until = time.monotonic() + PATIENCE_S
        strikes_at = time.monotonic() + chance.uniform(0.0, 1.0) if chance.random() < 0.5 else until
        writes_at = time.monotonic() + chance.uniform(0.0, 0.6) if chance.random() < 0.5 else until
        while not asked or site.is_busy:
            assert time.monotonic() < until, "the round does not end"
            if not asked:
                asked = site.optimize(chance.choice(self._kinds)) or len(site.processes()) > known
            if time.monotonic() > writes_at:
                writes_at = until
                site.write(chance, alone=False)
            if time.monotonic() > strikes_at:
                strikes_at = until
                self._strike(chance.choice(("coordinator", "coordinator", "optimizer")))
            self._bury()
            time.sleep(0.02)
        site.lake.require()
        self._totals["rounds"] += 1
        for who, name in tuple(self._armed.items()):
            if name:  # not reached
                self._strike(who)

    def _strike(self, who: str) -> None:
        child = getattr(self._site, who)
        if child.kill():
            self._count(who, ANY_MOMENT)
            self._restart(who)

    def _bury(self) -> None:
        """Start anew what died by its failpoint."""
        for who in ("coordinator", "optimizer"):
            if not getattr(self._site, who).is_alive:
                assert self._armed[who], f"the {who} ended by itself"
                self._count(who, self._armed[who])
                self._restart(who)

    def _count(self, who: str, where: str) -> None:
        self.kills += 1
        self._lost += who == "optimizer"
        self._totals["kills"] += 1
        self._totals[f"{where} × {who}"] += 1
        print(f"killed {who} at {where}")

    def _restart(self, who: str) -> None:
        died_at, is_armed = (
            self._armed[who],
            self._chance.random() < 0.7 and (who == "coordinator" or self._lost < MOST_OPTIMIZERS_LOST),
        )
        name = self._chance.choice(OF_COORDINATOR if who == "coordinator" else OF_OPTIMIZER) if is_armed else ""
        if is_armed and died_at in FOLLOWING:
            name = FOLLOWING[died_at]
        self._armed[who] = name
        armed = f"{name}=kill" if name else ""
        if who == "coordinator":
            self._site.start_coordinator(armed)
        else:
            self._site.start_optimizer(armed)


def run(
    seed: int,
    kills: int,
    directory: Path,
    totals: Counter[str],
    *,
    kinds: Sequence[str] = ("full",),
    properties: Mapping[str, str] = PROPERTIES,
) -> None:
    """At least so many kills over one table, and what must hold afterwards."""
    with Nursery() as nursery:
        site = Site(directory, nursery, properties, silence=SILENCE)
        try:
            Rounds(site, random.Random(seed), totals, kinds).run(kills)
            site.require(totals)
            totals["worlds"] += 1
        except BaseException:
            print(site.said())
            raise
        finally:
            site.close()
