"""Local and remote file systems, and the access to them that is confined to a table's locations."""
