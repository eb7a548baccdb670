"""What a version was made from: written with it, and read again."""
