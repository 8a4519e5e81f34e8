"""The main job, shown on a warehouse made for it: a table that is written to all the time is kept healthy."""

from amoro_core.demo.run import run_demo

__all__ = ["run_demo"]
