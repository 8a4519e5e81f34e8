"""Maintenance work executed by optimizers."""
