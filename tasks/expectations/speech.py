"""Facts about what attacker and target said: success, repetition, and how turns end."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

# As the report of the rollouts counts a success.
_SUCCESS_SCORE = 0.5
# A text with at least so many words and at most so many different ones is one word repeated.
_MANY_WORDS = 6
_DISTINCT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The longest probe and reply that could be sampled, in tokens; None where it is unknown."""

    probe: int | None = None
    response: int | None = None


NO_LIMITS = TokenLimits()


def speech_facts(frame: pd.DataFrame, limits: TokenLimits) -> dict[str, Any]:
    """Columns about the texts of each turn, none of which quotes them."""
    probes = frame["probe_text"].fillna("").astype(str).tolist()
    replies = [list(items(cell)) for cell in frame["response_texts"]]
    num_reply_ids = [[len(items(own)) for own in items(cell)] for cell in frame["response_ids"]]
    num_probe_ids = [len(items(cell)) for cell in frame["probe_ids"]]
    return {
        "success": (frame["score"].astype(float) >= _SUCCESS_SCORE).astype(float),
        "probe_key": [_key([text]) for text in probes],
        "reply_key": [_key(own) if own else None for own in replies],
        "degenerate_probe": [float(is_degenerate(text)) for text in probes],
        "degenerate_reply": [
            float(any(is_degenerate(text, probe=probe) for text in own))
            for probe, own in zip(probes, replies, strict=True)
        ],
        "probe_cut": [_share_at_limit([number], limits.probe) for number in num_probe_ids],
        **_endings(frame, num_reply_ids, limits.response),
        "ends_at_once": [float(number <= 1) for number in num_probe_ids],
    }


def is_degenerate(text: str, *, probe: str | None = None) -> bool:
    """True if a text says nothing of its own: blank, one word again and again, or the probe."""
    words = text.split()
    if not words or (probe is not None and text.strip() == probe.strip()):
        return True
    return len(words) >= _MANY_WORDS and len(set(words)) <= _DISTINCT_SHARE * len(words)


def items(cell: Any) -> Sequence[Any]:
    """The list in a cell, which parquet gives as an array and an absent one as None or NaN."""
    if cell is None or isinstance(cell, float):
        return ()
    return cell.tolist() if isinstance(cell, np.ndarray) else cell  # type: ignore[no-any-return]


def _endings(
    frame: pd.DataFrame, num_ids: Sequence[Sequence[int]], limit: int | None
) -> dict[str, list[float]]:
    """For each turn the shares of replies that a limit or a filter cut.

    Replies that came back only as text have no ids to count, so the target's own word is taken.
    """
    # A file in which every reply ended by itself has no reasons.
    has_reasons = "response_finish_reasons" in frame
    told = [items(cell) for cell in frame["response_finish_reasons"]] if has_reasons else []
    reasons = [list(own) for own in told] or [[]] * len(frame)
    return {
        "reply_cut": [
            max(_share(own, "length"), _share_at_limit(sizes, limit))
            for own, sizes in zip(reasons, num_ids, strict=True)
        ],
        "reply_filtered": [_share(own, "filter") for own in reasons],
    }


def _share(reasons: Sequence[str], wanted: str) -> float:
    return reasons.count(wanted) / max(len(reasons), 1)


def _key(texts: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()


def _share_at_limit(sizes: Sequence[int], limit: int | None) -> float:
    """Share of the texts that are as long as they could be; unknown lengths count as shorter."""
    if limit is None or not sizes:
        return 0.0
    return sum(size >= limit for size in sizes) / len(sizes)
