"""Errors of listening on a port of this machine, naming the process that holds it."""

import os
import socket
from pathlib import Path

from amoro_core.errors import AddressInUse, InvalidSettings

_LISTEN = "0A"


def unusable(host: str, port: int) -> InvalidSettings:
    """The error of listening there: AddressInUse, or that the host is not an address of this machine."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in found:
            with socket.socket(family, kind, protocol) as tried:
                tried.bind((place[0], 0))
    except OSError as error:
        return InvalidSettings(
            f"host {host} can't be listened on: {error.strerror or error}",
            hint="Give an address of this machine, such as 127.0.0.1, with --host or in amoro.yaml.",
        )
    return AddressInUse(
        f"{host}:{port} can't be listened on{holder_of(port)}",
        hint="Stop what listens there, or choose another port with --port (0 picks a free one).",
    )


def holder_of(port: int) -> str:
    """The process that listens on the port, as ": process 12 (name) listens there"; empty when unknown.

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
