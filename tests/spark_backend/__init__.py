"""Optimizers whose work runs in Spark."""
