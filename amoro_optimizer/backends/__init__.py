"""Where the rewrite runs; everything else is the runner's."""
