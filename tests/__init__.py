"""Tests of the project; a package so that they can share `tests.engine`."""
