"""Values of the services as messages of the AdminService: the one schema of what every way of asking answers."""
