"""What is fast, how good the result is, and how either is measured."""
