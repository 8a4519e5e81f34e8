"""Who listens on a port of this machine."""

import os
from pathlib import Path

_LISTEN = "0A"


def holder_of(port: int) -> str:
    """The process that listens on the port, as ": process 12 (name) listens there"; empty where it can't be told.

    Reads Linux's /proc; processes of other users stay unnamed.
    """
    inodes = _listening(port)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(entry) in inodes for entry in (process / "fd").iterdir()):
                return f": process {process.name} ({(process / 'comm').read_text().strip()}) listens there"
        except OSError:
            continue
    return ""


def _listening(port: int) -> frozenset[str]:
    inodes = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.append(f"socket:[{fields[9]}]")
    return frozenset(inodes)
