"""Sections of the configuration that are long enough for a module of their own."""
