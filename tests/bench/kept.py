"""What writing attempts, events and values over time adds to tasks and ends: `python -m tests.bench.kept`.

A task goes from its schedule over its ack to a failure that is reported, a process is cancelled, each in the service's
own writes on a real file; rounds with and without that writing take turns.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from amoro_core.services.optimizing import Failure
from amoro_core.services.sampling import sampled
from amoro_core.store import attempts, events, series
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.engine.writer import make_catalog
from tests.services.world import World


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        home.mkdir()
        world = World(home, make_catalog(Path(directory)))
        try:
            _show(world, given.rounds)
        finally:
            world.close()


def _show(world: World, rounds: int) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA, properties={"self-optimizing.execute.num-retries": "99"})
    for number in range(3):
        writer.append(table, [row(number)])
    optimizer = world.optimizer()
    took: dict[tuple[str, bool], list[float]] = {}
    for _ in range(rounds):
        for keeps in (True, False):
            with _without() if not keeps else ExitStack():
                process = world.begin()
                for _ in range(5):
                    begun = time.perf_counter()
                    (handed,) = world.poll(optimizer)
                    took.setdefault(("schedule", keeps), []).append(time.perf_counter() - begun)
                    world.optimizing.ack(optimizer, [handed.attempt])
                    begun = time.perf_counter()
                    world.complete(optimizer, handed.attempt, Failure("AMORO-1000", "no disk"))
                    took.setdefault(("failure", keeps), []).append(time.perf_counter() - begun)
                begun = time.perf_counter()
                world.optimizing.cancel(process, "the bench")
                took.setdefault(("end of a process", keeps), []).append(time.perf_counter() - begun)
    for name in ("schedule", "failure", "end of a process"):
        with_it, without = statistics.median(took[name, True]), statistics.median(took[name, False])
        print(f"{name}: {with_it * 1000:.2f} ms with it, {without * 1000:.2f} ms without")
    samples = world.store.read(lambda db: sampled(db, world.now))
    begun = time.perf_counter()
    for _ in range(rounds):
        world.store.write(lambda db: series.add(db, samples, world.now))
    print(f"a sample of {len(samples)} values: {(time.perf_counter() - begun) / rounds * 1000:.2f} ms")


@contextmanager
def _without() -> Iterator[None]:
    """Nothing is written down of what happens."""
    with ExitStack() as stack:
        for module in (attempts, events, series):
            stack.enter_context(mock.patch.object(module, "add", return_value=None))
        yield


if __name__ == "__main__":
    main()
