"""Catalogs of pyiceberg: how they are configured, reached and their errors translated."""
