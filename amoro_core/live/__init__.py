"""The live files of a snapshot in columns, and which delete applies to which of them."""
