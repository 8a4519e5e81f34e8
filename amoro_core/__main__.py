"""The command `amoro`."""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress

#: Threads that were told to end need less than this.
_LAST_S = 3.0


def main() -> None:
    """Run the command and end with its exit status."""
    ending = _Ending()  # before anything is imported that ends in a way of its own
    # While modules are imported, Ctrl-C ends the process like any signal: there is nothing to undo or to print.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not under nohup
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from amoro_core.bootstrap.command import amoro

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    ending.begin(amoro())


class _Ending:
    """Ends the process as Python does, but without its search for garbage and without taking all modules apart.

    Where somebody is to be called at the end whom we did not import (a profiler), Python does it all."""

    def __init__(self) -> None:
        self._status: int | None = None
        if not atexit._ncallbacks():
            atexit.register(self._last)  # registered first, called last

    def begin(self, status: int) -> None:
        """End the program now, without waiting for threads that wait for a silent catalog."""
        self._status = status
        # What was written to stdout and stderr was flushed as the command ended.
        last = threading.Timer(_LAST_S, os._exit, (status,))
        last.daemon = True
        last.start()
        sys.exit(status)

    def _last(self) -> None:
        if self._status is not None:
            with suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
                sys.stdout.flush()
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(self._status)


if __name__ == "__main__":
    main()
