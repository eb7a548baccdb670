"""Attackers that nobody trained: what a trained one must be better than."""
