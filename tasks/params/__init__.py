"""params.yaml and what else a person sets: read without trust, checked before any weight loads."""
