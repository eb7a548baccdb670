"""Rollouts that share beginnings, read as one packed tree."""
