"""Data and delete files, shared by coordinator and optimizer."""
