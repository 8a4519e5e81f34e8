"""Use cases on top of the pure layers, the store and the formats."""
