"""The contract of each kind of plug-in, built-in or not."""
