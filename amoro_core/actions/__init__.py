"""What is done to tables, each kind of process an action; the engines in `services` know none of them."""
