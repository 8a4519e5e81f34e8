"""Delete files and deletion vectors, and the rows that they mark."""
