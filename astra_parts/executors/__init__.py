"""Executors beside the local one."""
