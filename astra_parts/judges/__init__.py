"""Judges that read the whole exchange."""
