"""The Trainer and what a run is made of: updates, experience, checkpoints, stopping."""
