"""A small world that needs no download: its openers, its dialogues and its language model."""
