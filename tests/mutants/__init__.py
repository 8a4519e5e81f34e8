"""Mutation testing of matching, validation and commit: `python -m tests.mutants`."""
