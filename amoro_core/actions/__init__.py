"""Actions: the kinds of processes on tables. The engines in `services` know none of them specifically."""
