"""Use cases over the pure floors, the store and the formats."""
