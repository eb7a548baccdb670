"""params.yaml and other settings: read without trust, checked before any weights load."""
