"""Schemas by field id, projection with type promotion and defaults, partitions, write options."""
