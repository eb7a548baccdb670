"""The built-in targets: a local model, an endpoint, a program, replies by rules."""
