"""Targets without weights here: an endpoint, a program, replies by rules; and what they share."""
