"""Manifests and manifest lists: safe reading, caching, writing."""
