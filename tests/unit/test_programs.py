"""How programs end and handle signals, how local processes are found again, and what is logged."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from amoro_core.bootstrap.process import StderrHandler, event_formatter, on_signals
from amoro_core.containers.local import LocalContainer
from amoro_core.errors import AmoroError
from amoro_core.model.group_config import Liveness, Resource, ResourceState
from amoro_core.model.processes import uuid7
from tests.acceptance.processes import wait_until

PROGRAM = """
import sys, threading, types
import amoro_core.__main__


def amoro():
    threading.Thread(target=threading.Event().wait{timeout}).start()
    return 124


sys.modules['amoro_core.bootstrap.launcher'] = types.SimpleNamespace(amoro=amoro)
amoro_core.__main__._EXIT_TIMEOUT_S = 0.5
amoro_core.__main__.main()
"""


@pytest.mark.parametrize("timeout", ["", ", args=(0.1,)"], ids=["hanging", "ending"])
def test_a_program_ends_with_its_status_although_a_thread_hangs(timeout: str) -> None:
    program = PROGRAM.replace("{timeout}", timeout)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (124, "", "")


@contextmanager
def killed_at(step: int, number: int) -> Iterator[Callable[[], int]]:
    """Send this process the signal at that step of what follows, in Python's library too; tells how many there were."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        if event == "line" and frame.f_code.co_filename != __file__:
            if steps == step:
                os.kill(os.getpid(), number)
            steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: steps
    finally:
        sys.settrace(before)


def steps_of(run: Callable[[int], int]) -> int:
    """Run with a signal at every step until there is no further one; how many steps there were."""
    step = 0
    while run(step) > step:
        step += 1
        assert step < 1000
    return step


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_wait_ends_at_whatever_step_the_signal_comes(number: int) -> None:
    def wait(step: int) -> int:
        stop, told = threading.Event(), list[bool]()

        def act(again: bool) -> None:
            told.append(again)
            stop.set()

        with on_signals(act):
            # None comes once the steps are at their end: somebody else ends the wait.
            threading.Timer(0.2, stop.set).start()
            with killed_at(step, number) as steps:
                assert stop.wait(60)
            counted = steps()
        assert told == ([False] if counted > step else [])
        return counted

    assert steps_of(wait) > 5


def test_acting_may_take_a_lock_that_the_main_thread_holds_and_the_second_signal_is_told_as_such() -> None:
    lock, told, done = threading.Lock(), list[bool](), threading.Event()

    def act(again: bool) -> None:
        with lock:
            told.append(again)
        if again:
            done.set()

    with on_signals(act):
        with lock:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        assert done.wait(50)
    assert told == [False, True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "signals" not in [thread.name for thread in threading.enumerate()]


def test_other_signals_that_python_handles_do_not_count_and_the_pipe_of_before_is_back() -> None:
    told, heard = list[bool](), threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.set())
    try:
        with on_signals(told.append):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert heard.wait(30)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert told == []
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_that_another_thread_gets_ends_the_wait_of_the_main_thread() -> None:
    stop = threading.Event()
    with on_signals(lambda again: stop.set()):
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()
        assert stop.wait(30)


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
#: Says what of its environment it must not have, then waits to be ended.
SLEEPER = "import os, sys, time; print(os.environ.get('AMORO_TOKEN'), flush=True); time.sleep(300)"


@pytest.fixture
def sleeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LocalContainer, Resource]]:
    monkeypatch.setenv("AMORO_TOKEN", "the-admin-token")
    processes, resource_id = LocalContainer(tmp_path), uuid7(datetime.now(UTC))
    handle = processes.run(resource_id, [sys.executable, "-c", SLEEPER, resource_id])
    made = Resource(resource_id, "g", "local", ResourceState.STARTING, NOW, NOW, handle)
    wait_until(lambda: processes.logs(made, 1), "it has begun")
    yield processes, made
    processes.stop(made, by_force=True)
    with suppress(ChildProcessError):
        os.waitpid(int(handle), 0)


def ended(processes: LocalContainer, resource: Resource) -> str:
    os.waitid(os.P_PID, int(resource.handle), os.WEXITED | os.WNOWAIT)
    observed = processes.status(resource)
    assert observed.liveness is Liveness.ENDED
    return observed.detail


def test_a_process_is_found_by_its_handle_and_by_its_resource_alone(
    tmp_path: Path, sleeping: tuple[LocalContainer, Resource]
) -> None:
    processes, resource = sleeping
    assert processes.status(resource).liveness is Liveness.ALIVE
    later = LocalContainer(tmp_path)  # of a coordinator that was restarted
    lost = Resource(resource.resource_id, "g", "local", ResourceState.STARTING, NOW, NOW, "")
    assert [later.status(item).liveness for item in (resource, lost)] == [Liveness.ALIVE] * 2
    other = Resource(uuid7(NOW), "g", "local", ResourceState.STARTING, NOW, NOW, resource.handle)
    assert later.status(other).liveness is Liveness.ENDED  # its number was given anew
    later.stop(other, by_force=True)
    assert processes.status(resource).liveness is Liveness.ALIVE
    later.stop(lost, by_force=False)
    assert "its process has ended with status -15: None" in ended(processes, resource)


def test_force_ends_it_too_and_the_admin_token_stays_with_the_coordinator(
    tmp_path: Path, sleeping: tuple[LocalContainer, Resource]
) -> None:
    processes, resource = sleeping
    processes.stop(resource, by_force=True)
    assert "its process has ended with status -9" in ended(processes, resource)
    processes.stop(resource, by_force=True)
    (log,) = (tmp_path / "logs").iterdir()
    assert (log.stat().st_mode & 0o777, "the-admin-token" in log.read_text()) == (0o600, False)


def test_what_can_not_be_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(AmoroError, match="/no/such/program can't be started: No such file or directory"):
        LocalContainer(tmp_path).run("r", ["/no/such/program"])


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_line_that_nobody_can_read_any_more_is_dropped() -> None:
    closed = io.StringIO()
    closed.close()
    handler, record = StderrHandler(), logging.LogRecord("amoro", logging.INFO, "", 1, "line", None, None)
    for stream in (closed, Full()):
        with redirect_stderr(stream):
            handler.handle(record)
    with redirect_stderr(io.StringIO()) as kept:
        handler.handle(record)
    assert kept.getvalue() == "line\n"


@pytest.mark.parametrize("human", [True, False])
def test_tracebacks_of_logs_hold_no_local_variables_and_lines_no_secrets(human: bool) -> None:
    def fail() -> None:
        configuration = ["hush", "hush"]
        raise ValueError(len(configuration))

    handler = StderrHandler()
    handler.setFormatter(event_formatter(human=human, colours=False))
    with redirect_stderr(io.StringIO()) as kept:
        try:
            fail()
        except ValueError:
            handler.handle(logging.LogRecord("amoro", logging.ERROR, "", 1, "x", None, sys.exc_info()))
        handler.handle(logging.LogRecord("pyiceberg", logging.WARNING, "", 1, "token=%s", ("hush",), None))
        handler.handle(logging.LogRecord("amoro", logging.INFO, "", 1, "http://me:hush@host", None, None))
    assert "fail" in kept.getvalue()
    assert "pyiceberg" in kept.getvalue()
    assert "hush" not in kept.getvalue().replace('["hush", "hush"]', "")  # the line of the source


def _on_a_terminal(**environment: str) -> str:
    """What a line of our log is on a real terminal."""
    ours, theirs = os.openpty()
    program = (
        "from amoro_core.logger import get_logger; from amoro_core.bootstrap.process import configure_logs; "
        "configure_logs();"
        "get_logger('amoro.x').info('task.completed', process='p', task=3)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path), "TERM": "xterm-256color", **environment}
    with os.fdopen(ours, "rb", buffering=0) as screen:
        subprocess.run([sys.executable, "-c", program], stderr=theirs, env=environment, timeout=120, check=True)
        os.close(theirs)
        return screen.read(10_000).decode()


def test_on_a_terminal_lines_are_for_people_and_coloured_where_it_wants_that() -> None:
    assert "\x1b[" in _on_a_terminal()
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        line = _on_a_terminal(**plain)
        assert "\x1b" not in line
        assert line.split()[1:] == ["[info", "]", "task.completed", "process=p", "task=3"]


def _as_a_library(program: str) -> subprocess.CompletedProcess[str]:
    """A program that is not ours, in which our loops and services tell of three things."""
    events = (
        "import json, logging, sys; from amoro_core.logger import get_logger; log = get_logger('amoro.x')\n"
        f"{program}\n"
        "log.info('task.completed', process='p')\n"
        "log.warning('task.reset', task='p-1', reason='its thread is silent')\n"
        "try:\n    raise ValueError(3)\nexcept ValueError:\n    log.exception('loop.failed', loop='keeper')\n"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", events], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    assert done.stdout == ""
    return done


def test_a_program_gets_events_of_the_library_where_its_own_logging_goes() -> None:
    assert _as_a_library("").stderr == ""
    assert _as_a_library("logging.basicConfig(format='%(name)s %(levelname)s %(message)s')").stderr.splitlines() == [
        "amoro.x WARNING task.reset task=p-1 reason=its thread is silent",
        "amoro.x ERROR loop.failed loop=keeper",
        "Traceback (most recent call last):",
        '  File "<string>", line 6, in <module>',
        "ValueError: 3",
    ]


def test_off_a_terminal_events_of_a_service_are_json_with_tracebacks_and_each_stands_there_once() -> None:
    lines = [
        json.loads(line)
        for line in _as_a_library(
            "from amoro_core.bootstrap.process import configure_logs; configure_logs(); configure_logs()"
        ).stderr.splitlines()
    ]
    assert [sorted(line) for line in lines] == [
        ["event", "level", "process", "timestamp"],
        ["event", "level", "reason", "task", "timestamp"],
        ["event", "exception", "level", "loop", "timestamp"],
    ]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("task.completed", "info"),
        ("task.reset", "warning"),
        ("loop.failed", "error"),
    ]
