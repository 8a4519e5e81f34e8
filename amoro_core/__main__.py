"""The command `amoro`."""

import signal
import sys


def main() -> None:
    """Run the command and end with its exit status."""
    # While modules are loaded, Ctrl-C ends it as a signal ends any program: there is nothing to undo or to say.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not what was started by nohup
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from amoro_core.command import amoro

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(amoro())


if __name__ == "__main__":
    main()
