"""Clustering: the rows of a group in the order of a layout, split between outputs; in memory or through disk."""
