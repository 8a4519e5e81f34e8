"""Catalogs and stores that fail: commits whose outcome nobody knows, files that can't be read or written."""
