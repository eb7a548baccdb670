"""Model versions in the registry: what is registered, written with it and read again."""
