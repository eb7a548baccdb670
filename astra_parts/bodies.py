"""How many bytes of a request or an answer over HTTP are read."""

MOST_JSON = 1 << 24
MOST_FIGURES = 1 << 26  # figures for each token of a batch
MOST_WEIGHTS = 1 << 36  # weights that a service sends for a model whose size is not known here
