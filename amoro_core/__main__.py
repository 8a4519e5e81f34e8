"""The command `amoro`."""

import os
import signal
import sys
import threading

#: Seconds that threads may take to end; what waits for a silent catalog is abandoned.
_EXIT_TIMEOUT_S = 3.0


def main() -> None:
    """Run the command and end with its exit status."""
    # Ctrl-C while modules are imported ends the process like any signal: there is nothing to undo or to print.
    handles_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not under nohup
    if handles_interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from amoro_core.bootstrap.launcher import amoro

    if handles_interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    status = amoro()
    # Python joins all pool threads at its end, for as long as they take.
    timer = threading.Timer(_EXIT_TIMEOUT_S, os._exit, (status,))
    timer.daemon = True
    timer.start()
    sys.exit(status)


if __name__ == "__main__":
    main()
