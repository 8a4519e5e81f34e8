"""The Python API, with real coordinators."""
