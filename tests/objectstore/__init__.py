"""Whole optimizing on a warehouse in an object store."""
