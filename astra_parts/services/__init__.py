"""Training by services: every request is written down first, so that nothing is paid for twice."""
