"""Whose turn it is: pure functions of what is pending and running."""
