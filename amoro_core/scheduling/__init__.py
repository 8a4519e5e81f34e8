"""Scheduling of tables and tasks: pure functions of what is pending and running."""
