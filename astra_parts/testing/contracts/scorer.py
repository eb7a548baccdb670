"""The contract of a scorer."""

from collections.abc import Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

from astra_core.scorer import Rater, Scorer
from astra_parts.testing.contracts.common import TEXTS, are_close, built, promise


def check_scorer(plugin: str | type[Scorer], **options: Any) -> None:
    """Raises AssertionError unless a scorer may be named under ``system.scorer``.

    - Its options refuse unknown keys, and it is built as ``Class(options)``.
    - One score per text, in order, a float in [0, 1], also for empty, very long and foreign text.
    - A text's score depends only on the text: not on its neighbours, its place, the call or the
      thread, so that it may be cached.
      - ``works_on`` is ``cpu``, ``gpu`` or ``elsewhere``.
    - No text gives no score; ``version`` is not empty and stays what it is.
    """
    scorer: Scorer = built("scorer", plugin, options)
    version = scorer.version
    scores = scorer.score(TEXTS)
    promise(isinstance(scores, Sized), f"one score per text, got {type(scores).__name__}")
    promise(len(scores) == len(TEXTS), f"one score per text, got {len(scores)} of {len(TEXTS)}")
    for text, score in zip(TEXTS, scores, strict=True):
        holds = isinstance(score, float) and 0.0 <= score <= 1.0
        promise(holds, f"a score is a float in [0, 1], got {score!r} for {text[:20]!r}")
    alone = [scorer.score([text])[0] for text in TEXTS]
    promise(all(map(are_close, scores, alone)), "a score does not depend on the batch")
    turned = scorer.score(TEXTS[::-1])[::-1]
    promise(all(map(are_close, scores, turned)), "scores come in the order of the texts")
    with ThreadPoolExecutor(max_workers=1) as worker:
        elsewhere = worker.submit(scorer.score, TEXTS).result()
    promise(all(map(are_close, scores, elsewhere)), "a score does not depend on the thread")
    places = get_args(Rater.__annotations__["works_on"])
    promise(scorer.works_on in places, f"works_on is one of {places}, got {scorer.works_on!r}")
    promise(list(scorer.score([])) == [], "an empty batch gives an empty list")
    promise(bool(version) and scorer.version == version, "a version names the scorer and stays")
