"""Several processes that train one attacker together."""
