"""Formats of models that are read once."""
