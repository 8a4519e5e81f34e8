"""The demo: a table under constant writes is optimized, in a warehouse of its own."""
