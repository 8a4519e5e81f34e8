"""Processes of Amoro that are killed with SIGKILL and started again, many a minute."""
