"""Tried or reckoned before a run: a batch, a file of prompts, a rate, time and replies."""
