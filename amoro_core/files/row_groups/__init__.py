"""Row groups that are copied without being decoded."""
