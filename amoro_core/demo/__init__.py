"""The demo: a table under constant writes is kept healthy, in a warehouse made for it."""

from amoro_core.demo.run import run_demo

__all__ = ["run_demo"]
