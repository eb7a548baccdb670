"""The stages, one typed function each."""
