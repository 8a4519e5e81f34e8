"""Periodic work of the coordinator."""
