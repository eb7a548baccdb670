"""How much of a request or an answer over HTTP is read."""

MOST_JSON = 1 << 24
"""Bytes of JSON that are read of a request or an answer."""

MOST_FIGURES = 1 << 26
"""Bytes of an answer that has figures for each token of a batch."""

MOST_WEIGHTS = 1 << 36
"""Bytes of weights that a service sends for a model whose size is not known here."""
