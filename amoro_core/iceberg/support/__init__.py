"""Tables that are refused, and what pyiceberg may not be asked for."""
