"""The files that stages hand to each other."""
