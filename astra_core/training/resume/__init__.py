"""How a run resumes from a checkpoint: its state, and what may differ from it."""
