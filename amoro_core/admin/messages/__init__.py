"""Values of the services as messages of the AdminService: one schema for every transport."""
