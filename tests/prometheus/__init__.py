"""What Prometheus makes of what it is told: the rules of the documentation on scrapes of a coordinator."""
