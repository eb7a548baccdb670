"""Figures of an evaluation that the loop does not need."""
