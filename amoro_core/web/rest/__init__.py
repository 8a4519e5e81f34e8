"""The REST API over the operations of the AdminService."""
