"""What happens by the clock."""
