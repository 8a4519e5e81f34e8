"""Decisions of maintenance as pure functions: nothing here reads a clock, a table or a file."""
