"""Expiry, reachability, rewriting of manifests, statistics."""
