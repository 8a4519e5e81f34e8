"""State in SQLite: one writer, facts only."""
