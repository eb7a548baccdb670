"""Which attackers are evaluated, which one is kept, and why a run ends."""
