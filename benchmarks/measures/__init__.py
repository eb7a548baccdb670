"""Each module is one measure; ``python -m benchmarks`` runs them."""
