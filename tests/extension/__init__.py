"""A table format, an action and a kind of work as a package plugs them in: what `docs/howto/extending.md` shows."""
