"""The rewrite engine on random tables, against the slow reader of `tests.engine`."""
