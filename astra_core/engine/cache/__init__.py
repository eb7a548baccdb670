"""Keys and values that a model has read, kept so that nothing is read twice."""
