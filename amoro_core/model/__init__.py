"""Values that every floor shares; no behaviour beyond their own invariants."""
