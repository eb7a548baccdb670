"""Parts that params.yaml can name beside those of the loop, and what only they need."""
