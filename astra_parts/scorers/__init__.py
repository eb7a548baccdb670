"""Scorers beside the default one."""
