"""Answers of the coordinator as documents to print. Pure functions of messages."""
