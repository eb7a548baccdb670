"""The plain way, against which the engine is checked and timed."""
