"""Prompts by category, a column of the user's file, under labels that a report may show."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from astra_core.metrics.statistics import Interval, bootstrap_mean, rate_interval
from astra_core.redaction import mask
from astra_core.rollout import Prompt
from astra_core.rollout.metadata import Scalar

CATEGORY = "category"
OTHER = "other"
NONE = "none"
MAX_CATEGORIES = 20

# A text like a name is shown: "Malware/Hacking", "O1: Toxicity & bias". A longer text may be an
# attack. A wide letter counts like part of a word.
_NAME = re.compile(r"[\w .,:;&/()+'-]+")
_MAX_WORDS = 4
_MAX_WIDTH = 40
_WIDE = 4


def category_labels(prompts: Sequence[Prompt]) -> tuple[str, ...]:
    """The label of each prompt's category; empty where no prompt has one.

    A prompt without one is ``none``. Of more than ``MAX_CATEGORIES`` the rarest are ``other``.
    """
    values = [prompt.metadata.get(CATEGORY) for prompt in prompts]
    if all(value is None for value in values):
        return ()
    labels = [label_of(value) for value in values]
    counts = Counter(labels)
    ranked = sorted(counts, key=lambda label: (-counts[label], label))
    # One label is kept for the rest.
    shown = set(ranked if len(ranked) <= MAX_CATEGORIES else ranked[: MAX_CATEGORIES - 1])
    return tuple(label if label in shown else OTHER for label in labels)


def means_by_label(
    labels: Sequence[str],
    values: Sequence[float],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
    are_rates: bool = False,
) -> dict[str, Interval]:
    """Mean and bootstrap interval of the prompts under each label, most prompts first.

    Args:
        num_resamples: As in ``bootstrap_mean``, which treats each label as a sample of its own.
        are_rates: True for success rates, whose intervals are those of ``rate_interval``.
    """
    interval = rate_interval if are_rates else bootstrap_mean
    own: dict[str, list[float]] = {}
    for label, value in zip(labels, values, strict=True):
        own.setdefault(label, []).append(value)
    ranked = sorted(own, key=lambda label: (-len(own[label]), label))
    return {
        label: interval(own[label], num_resamples=num_resamples, confidence=confidence, seed=seed)
        for label in ranked
    }


def label_of(value: Scalar) -> str:
    """A category's name in a report: unchanged if it is a name, else masked, with a short digest.

    >>> label_of("Malware/Hacking")
    'Malware/Hacking'
    >>> label_of("you never listen to what I say")
    'y·· n···· l····· t· w··· I s·· #e7f4'
    """
    if value is None:
        return NONE
    text = " ".join(str(value).split())
    if not text:
        return NONE
    if _NAME.fullmatch(text) and len(text.split()) <= _MAX_WORDS and _width(text) <= _MAX_WIDTH:
        return text
    return f"{mask(text)[:_MAX_WIDTH]} #{hashlib.sha256(text.encode()).hexdigest()[:4]}"


def _width(text: str) -> int:
    return sum(_WIDE if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
