"""Figures: each module is one command."""
