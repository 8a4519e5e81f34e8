"""Start-up: settings, composition of the services, the servers, the process of a coordinator."""
