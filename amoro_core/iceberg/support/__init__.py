"""Refusal of unsupported tables, and limits on what pyiceberg may do."""
