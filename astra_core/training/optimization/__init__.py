"""How far one update moves the weights: optimisers, learning rates and their schedules."""
