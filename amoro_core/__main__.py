"""The command `amoro`."""

import gc
import os
import signal
import sys
import threading

#: Threads that were told to end need less than this.
_LAST_S = 3.0


def main() -> None:
    """Run the command and end with its exit status."""
    # While modules are imported, Ctrl-C ends the process like any signal: there is nothing to undo or to print.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not under nohup
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from amoro_core.command import amoro

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _leave(amoro())


def _leave(status: int) -> None:
    """End the program now, without waiting for threads that wait for a silent catalog."""
    # What was written to stdout and stderr was flushed as the command ended.
    last = threading.Timer(_LAST_S, os._exit, (status,))
    last.daemon = True
    last.start()
    gc.freeze()  # Python, as it ends, would search all that was imported for garbage
    sys.exit(status)


if __name__ == "__main__":
    main()
