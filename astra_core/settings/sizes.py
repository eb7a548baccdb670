"""How large trees may be: what a record can hold, and what could ever be sampled."""

from collections.abc import Sequence

from astra_core.errors import ConfigurationError

MOST_TURNS = 128
"""Of a conversation: trees are nested, and copied and sent by recursion, which Python ends at some
two hundred turns."""

MOST_NEW_TOKENS = 1 << 20
"""Of one utterance: more than any model's context; each has a random number of its own."""

MOST_TEXTS = 10_000_000
"""Probes and replies that are held at once: with their tokens two kilobytes each, on average."""


def refuse_many_texts(
    subject: str, num_trees: int, widths: Sequence[int], *, num_responses: int, refills: int = 0
) -> None:
    """Raises ConfigurationError unless so many trees could be sampled and held."""
    turns, level = 0, num_trees
    for width in widths:
        level *= width
        turns += level
    if turns * (1 + refills + num_responses) > MOST_TEXTS:
        again = f", refills={refills}" if refills else ""
        msg = (
            f"{subject} must ask for at most {MOST_TEXTS} probes and replies at once, got "
            f"{num_trees} trees of width {max(widths)} and depth {len(widths)}, "
            f"num_responses={num_responses}{again}; lower one of these"
        )
        raise ConfigurationError(msg)
