"""What holds for all tests: tiers, their selection and order, durations, and logs as at the start."""

import gc
import logging
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Generator

import psutil
import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from amoro_core.logger import ROOT
from tests import tiers

# A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# As in CI: no limit on the time of one example, and the same examples in each run.
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _logs_as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of another test in this process may have set up the logs, and its stderr is closed by now."""
    ours = logging.getLogger(ROOT)
    monkeypatch.setattr(ours, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(ours, "propagate", True)
    ours.setLevel(logging.NOTSET)
    others = logging.getLogger()
    kept = [handler for handler in others.handlers if type(handler) is not logging.StreamHandler]
    monkeypatch.setattr(others, "handlers", kept)


# --- Tiers ------------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers of tests")
    group.addoption("--tier", choices=tiers.TIERS, help="run the tests of this tier and of those below it (all)")
    group.addoption("--seed", help="first seed of random tests: a number, or `fresh` for a new one (0)")
    group.addoption("--write-durations", action="store_true", help="rewrite tests/durations.tsv")


def pytest_configure(config: pytest.Config) -> None:
    """Tells tier and seed to parametrized lists and to the workers of xdist, which inherit the environment."""
    if (tier := config.getoption("tier")) is not None:
        os.environ[tiers.TIER_VARIABLE] = tier
    seed = config.getoption("seed")
    if seed == "fresh":
        given = os.environ.get(tiers.SEED_VARIABLE) if _is_worker(config) else None
        seed = given or random.SystemRandom().randrange(10**9)
    if seed is not None:
        os.environ[tiers.SEED_VARIABLE] = str(int(seed))


def pytest_report_header(config: pytest.Config) -> str:
    seed = os.environ.get(tiers.SEED_VARIABLE, "0")
    return f"tier: {tiers.current_tier()}; random tests begin with seed {seed} (again with: --seed {seed})"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without the garbage collector, which would look at all modules and tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    durations, limit = tiers.read_durations(), tiers.TIERS.index(tiers.current_tier())
    kept, above = [], []
    for item in items:
        function = tiers.function_of(item.nodeid)
        tier = durations[function].tier if function in durations else tiers.directory_tier(item.nodeid)
        (kept if tiers.TIERS.index(tier) <= limit else above).append(item)
    if above:
        config.hook.pytest_deselected(items=above)
        items[:] = kept
    if _is_worker(config):
        _begin_with_the_longest(items, durations)


# --- Two workers ------------------------------------------------------------------------------------------------------


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _scope(node_id: str) -> str:
    """What one worker runs: a file, or everything that shares Spark's JVM."""
    return "spark" if node_id.startswith(("tests/spark/", "tests/spark_backend/")) else node_id.split("::", 1)[0]


def _begin_with_the_longest(items: list[pytest.Item], durations: dict[str, tiers.Duration]) -> None:
    seconds: dict[str, float] = defaultdict(float)
    for item in items:
        seconds[_scope(item.nodeid)] += tiers.UNLISTED_S
    for function in sorted({tiers.function_of(item.nodeid) for item in items} & durations.keys()):
        seconds[_scope(function)] += max(durations[function].cpu_s, durations[function].wall_s)
    # The same order in each worker: xdist compares them.
    items.sort(key=lambda item: ((scope := _scope(item.nodeid)) != "spark", -seconds[scope], scope))


class ScopeScheduling(LoadScopeScheduling):
    """Hands out whole files in the order of collection, and Spark's tests as one."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ScopeScheduling:
    config.option.loadscopereorder = False
    return ScopeScheduling(config, log)


# --- Durations --------------------------------------------------------------------------------------------------------

_START = pytest.StashKey[tuple[float, float]]()


def _cpu_s() -> float:
    """CPU seconds of this process, of the children that ended, and of those that run, a JVM among them."""
    own = psutil.Process()
    total = sum(own.cpu_times()[:4])
    for child in own.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.config.getoption("write_durations"):
        item.stash[_START] = (_cpu_s(), time.perf_counter())
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, object, object]:
    if call.when == "teardown" and (start := item.stash.get(_START, None)) is not None:
        item.user_properties.append(("seconds", (_cpu_s() - start[0], time.perf_counter() - start[1])))
    return (yield)


class DurationsWriter:
    """Adds up what reports say, in the process that the user started, and rewrites the list at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == "seconds" and report.when == "teardown":
                total = self._seconds[tiers.function_of(report.nodeid)]
                total[0] += value[0]
                total[1] += value[1]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        is_whole = [arg.rstrip("/") for arg in self._config.args] == ["tests"] and tiers.current_tier() == "all"
        measured = {function: (cpu, wall) for function, (cpu, wall) in self._seconds.items()}
        tiers.write_durations(tiers.updated(tiers.read_durations(), measured, whole=is_whole))


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if config.getoption("write_durations") and not _is_worker(config):
        config.pluginmanager.register(DurationsWriter(config))
