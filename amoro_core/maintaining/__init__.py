"""What maintenance decides, as functions of values: nothing here reads a clock, a table or a file."""
