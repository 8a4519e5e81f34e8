"""Optimizers: clients of the coordinator that rewrite files."""
