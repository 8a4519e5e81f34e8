"""Values shared by all layers; no behaviour beyond their own invariants."""
