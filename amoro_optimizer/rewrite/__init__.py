"""The rewrite engine: Arrow in, files out; used by all executors."""
