"""The servers on this machine, who may use them, and what they run in."""
