"""Algorithms, one short file each; the mathematics is in ``functional``."""
