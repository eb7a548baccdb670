"""The servers on this machine, access to them, and their environment."""
