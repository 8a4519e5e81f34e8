"""How long calls of the AdminService may last: a client waits as long, and the coordinator answers within it."""

from datetime import timedelta

QUICK = timedelta(seconds=30)  # what the coordinator knows already
TOUCHING = timedelta(minutes=2)  # what reaches out to a catalog or a container
READING = timedelta(minutes=10)  # what reads a table's manifests
LASTING = timedelta(hours=24)  # what the caller gives a time of its own to
