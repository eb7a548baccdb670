"""The world ``mirror`` from other people's comments: documents that are all rude or all clean.

A model that has read them answers rudeness with rudeness, in real words that our grammar does not
have. The comments stay where they are: nothing of them is shipped.
"""

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.registry import build
from astra_core.scorer import Scorer

_LINES = 3
_RUDE_SHARE = 0.3
_SHORTEST, _LONGEST = 3, 25
_PROMPT_EVERY = 4
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def read_comments(path: Path) -> list[str]:
    """The texts of a JSON list.

    Raises:
        ConfigurationError: It is not such a file.
    """
    try:
        found: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        msg = f"--comments must be a readable JSON file, got {path}: {type(error).__name__}"
        raise ConfigurationError(msg) from error
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        msg = f"--comments must hold a JSON list of texts, got another value in {path}"
        raise ConfigurationError(msg)
    return found


def sentences_of(comment: str) -> list[str]:
    """The sentences of 3 to 25 words in a text, with single spaces."""
    sentences = _SENTENCE_END.split(" ".join(comment.split()))
    return [own for own in sentences if _SHORTEST <= len(own.split()) <= _LONGEST]


def forum_texts(
    comments: Sequence[str], *, num_dialogues: int, num_prompts: int, seed: int
) -> tuple[list[list[str]], list[str]]:
    """Dialogues of three sentences in one tone, and clean sentences of other comments as prompts.

    Every fourth comment is for prompts alone. 30 % of the dialogues are rude.

    Raises:
        ConfigurationError: There are too few rude or clean sentences.
    """
    scorer: Scorer = build("scorer", Choice(name="profanity"))
    rng = random.Random(f"forum {seed}")
    read, held = list[str](), list[str]()
    for index, comment in enumerate(dict.fromkeys(comments)):
        (read if index % _PROMPT_EVERY else held).extend(sentences_of(comment))
    clean, rude = _by_tone(read, scorer)
    prompts, _ = _by_tone([text for text in dict.fromkeys(held) if text not in set(read)], scorer)
    if min(len(clean), len(rude)) < _LINES or not prompts:
        msg = (
            f"--comments must have {_LINES} rude and {_LINES} clean sentences and one prompt, got "
            f"{len(rude)}, {len(clean)} and {len(prompts)}; name a file with more comments"
        )
        raise ConfigurationError(msg)
    dialogues = [
        rng.sample(rude if rng.random() < _RUDE_SHARE else clean, _LINES)
        for _ in range(num_dialogues)
    ]
    return dialogues, rng.sample(prompts, min(num_prompts, len(prompts)))


def _by_tone(texts: Sequence[str], scorer: Scorer) -> tuple[list[str], list[str]]:
    """The clean sentences and the rude ones."""
    scores = scorer.score(list(texts))
    rated = list(zip(texts, scores, strict=True))
    return [t for t, score in rated if score < 0.5], [t for t, score in rated if score >= 0.5]
