"""Clustering planned: which files are written anew in the order of a layout, and why or why not. Pure."""
