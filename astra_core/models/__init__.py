"""Causal language models: loading, sampling, log-probabilities."""
