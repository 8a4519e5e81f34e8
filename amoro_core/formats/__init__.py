"""The port through which services see tables, and its kinds."""
