"""Deadlines of calls to the AdminService, for the client and for the coordinator."""

from datetime import timedelta

QUICK = timedelta(seconds=30)  # answered from the state database
CHECKING = timedelta(seconds=10)  # asks a catalog whether it answers
TOUCHING = timedelta(minutes=2)  # calls a catalog or a container
READING = timedelta(minutes=10)  # one that reads manifests of a table
LASTING = timedelta(hours=24)  # the client sets a deadline of its own
