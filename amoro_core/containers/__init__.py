"""Containers, in which optimizers run: processes on this machine, Spark applications, or elsewhere."""
