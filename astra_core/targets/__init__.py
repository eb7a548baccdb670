"""What can be attacked: a local model, an endpoint, a program, replies by rules."""
