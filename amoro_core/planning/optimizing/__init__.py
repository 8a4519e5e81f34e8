"""Minor, major and full optimizing: which files of a partition are rewritten, and in which tasks."""
