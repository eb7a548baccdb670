"""Training by services: what is asked of them is written down first, so that none is paid twice."""
