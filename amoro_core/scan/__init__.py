"""The live files of a snapshot in columnar form, and which delete applies to which of them."""
