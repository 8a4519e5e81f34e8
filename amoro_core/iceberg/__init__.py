"""Iceberg tables: metadata, scan, manifests, commit, catalogs."""
