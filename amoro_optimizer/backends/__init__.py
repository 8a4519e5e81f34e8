"""Backends, which execute the work; everything else is done by the runner."""
