"""The contract between processes: stubs generated from proto/ and the codec to values."""
