"""How several agents that learn together regard each other."""
