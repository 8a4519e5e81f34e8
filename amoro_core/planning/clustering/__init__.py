"""Planning of clustering: which files are rewritten in the order of a layout, and why or why not. Pure."""
