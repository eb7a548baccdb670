"""Algorithms beside the default one."""
