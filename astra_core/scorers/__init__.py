"""Scorers that work offline."""
