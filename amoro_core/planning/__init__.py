"""Which files of a table are worth a rewrite, and why: pure functions of a scan."""
