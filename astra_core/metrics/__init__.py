"""What attackers are compared by."""
