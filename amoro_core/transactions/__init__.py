"""Steps of services within one write of the store that involve several of its tables."""
