"""Ways of retelling and rewording probes."""
