"""The program ends with its status once what was registered has run, and Python's modules are not taken apart."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading
import amoro_core.command
import amoro_core.__main__


class Left:
    def __del__(self, say=sys.stderr.write):
        say("taken apart")


left = Left()


def work():
    threading.main_thread().join()  # which ends first
    print("the thread has ended")


def amoro():
    atexit.register(print, "registered")
    threading.Thread(target=work).start()
    return {status}


amoro_core.command.amoro = amoro
amoro_core.__main__.main()
"""


@pytest.mark.parametrize("status", [0, 3, 124])
def test_threads_and_what_is_registered_end_first(status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{status}", str(status))], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, "the thread has ended\nregistered\n", "")


def test_what_was_registered_before_the_program_is_called_too() -> None:
    program = f"import atexit\natexit.register(print, 'a profiler')\n{PROGRAM.replace('{status}', '3')}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "the thread has ended\nregistered\na profiler\n")


def test_an_output_that_nobody_reads_does_not_change_the_status() -> None:
    program = PROGRAM.replace("{status}", "0")
    buffering = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffering
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 0
    assert said == b""
