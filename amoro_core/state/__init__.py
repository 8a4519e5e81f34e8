"""State machines of tasks, processes and tables as pure tables."""
