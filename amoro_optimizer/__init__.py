"""Optimizers: clients of the coordinator that execute tasks."""
