"""A cache in front of a scorer: a recently scored text is not scored again.

Attackers repeat themselves, and every evaluation of equal weights repeats every text.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from astra_core.scorer import Scorer, checked_scores


class CachedScorer(Scorer):
    """Passes on the texts that are not cached, each once, as one batch.

    Args:
        scorer: Scores what is not cached.
        size: How many texts are cached; the least recently used is evicted first.
    """

    def __init__(self, scorer: Scorer, size: int) -> None:
        super().__init__(scorer.options)
        self.works_on = scorer.works_on
        self._scorer = scorer
        self._size = size
        self._known: OrderedDict[bytes, float] = OrderedDict()

    @property
    def version(self) -> str:
        """The scorer's own: caching changes no score."""
        return self._scorer.version

    def score(self, texts: Sequence[str]) -> list[float]:
        """The scorer's scores, cached or new."""
        keys = [_key(text) for text in texts]
        scores = {key: self._known[key] for key in keys if key in self._known}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in scores}
        if missing:
            fresh = checked_scores(self._scorer, list(missing.values()))
            scores.update(zip(missing, fresh, strict=True))
        for key in keys:
            self._known[key] = scores[key]
            self._known.move_to_end(key)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return [scores[key] for key in keys]


def _key(text: str) -> bytes:
    # Not the text: an entry then takes the same memory however long that is.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
