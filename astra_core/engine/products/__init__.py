"""Matrix products by the fastest route that this processor has."""
