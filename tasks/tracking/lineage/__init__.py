"""What a version was made from: written with the version, and read back."""
