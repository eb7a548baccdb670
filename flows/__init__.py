"""Prefect flows that compose the stages, their schedules, and the command line."""
