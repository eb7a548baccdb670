"""Schedules beside those of transformers."""
