"""What accepted rows are like, as counts in fixed bins: small, without a text, and easy to compare.

``drift`` compares the profiles of two data sets. The bins never follow the data, so that the counts
of pieces add up to those of the whole.
"""

import re
import zlib
from collections.abc import Iterable

import numpy as np
import pandas as pd

Profile = dict[str, list[int]]
"""Rows (for ``vocabulary``, words) in each bin, by what was counted."""

# Upper ends of lengths, in steps of a half and a third: 0, 1, 2, 3, 4, 6, 8, 12, ... 65,536.
_LENGTHS = np.array([0, *sorted({2**k for k in range(17)} | {3 * 2**k for k in range(15)})])
_SCORES = np.linspace(0.0, 1.0, 21)[1:]
# Words are counted by the checksum of their spelling, which tells no word.
_NUM_WORD_BINS = 64
_WORD = re.compile(r"\w+")


def prompt_profile(frame: pd.DataFrame) -> Profile:
    """Of the rows of ``prompt_facts`` with their ``prompt_score``: lengths, scores and words."""
    return {
        "characters": _bin_counts(frame["num_characters"], _LENGTHS),
        "words": _bin_counts(frame["num_words"], _LENGTHS),
        "score": _bin_counts(frame["prompt_score"], _SCORES),
        "vocabulary": _vocabulary(frame["text"]),
    }


def rollout_profile(facts: pd.DataFrame) -> Profile:
    """Of the turns of ``rollout_facts`` that did not fail: lengths and scores."""
    held = facts[facts["failed"] == 0.0]
    return {
        "probe_tokens": _bin_counts(held["num_probe_ids"], _LENGTHS),
        "reply_characters": _bin_counts(held["response_characters"], _LENGTHS),
        "score": _bin_counts(held["score"].dropna(), _SCORES),
        "probe_score": _bin_counts(held["probe_score"].dropna(), _SCORES),
    }


def add_profiles(first: Profile, second: Profile) -> Profile:
    """The profile of both sets of rows together; the first may be empty."""
    return {
        name: [a + b for a, b in zip(first.get(name) or [0] * len(counts), counts, strict=True)]
        for name, counts in second.items()
    }


def _bin_counts(values: pd.Series, ends: np.ndarray) -> list[int]:
    """How many values are at most each end and above the one before; the last takes all above."""
    places = np.minimum(np.searchsorted(ends, values.to_numpy(float)), len(ends) - 1)
    return [int(count) for count in np.bincount(places, minlength=len(ends))]


def _vocabulary(texts: Iterable[str]) -> list[int]:
    counts = [0] * _NUM_WORD_BINS
    for text in texts:
        for word in _WORD.findall(text.casefold()):
            counts[zlib.crc32(word.encode()) % _NUM_WORD_BINS] += 1
    return counts
