"""Targets beside a causal LM of one's own."""
