"""The web side of a coordinator: REST and pages over the operations of the AdminService."""
