"""How a run goes on from a checkpoint: its state, and what may differ from it."""
