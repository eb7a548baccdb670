"""The metrics by which attackers are compared."""
