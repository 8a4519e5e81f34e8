"""The port through which services access tables, and its implementations."""
