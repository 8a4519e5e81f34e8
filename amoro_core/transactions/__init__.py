"""What services do within one write of the store, beyond a single table of it."""
