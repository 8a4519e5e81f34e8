"""Staging of a commit, the commit itself, and what became of one whose outcome is unknown."""
