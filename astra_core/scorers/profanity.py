"""The default scorer: the packaged linear model of alt-profanity-check.

It is fast (hundredths of a millisecond per text in a batch) and lexical: it sees swearing and
insults, and misses threats and hate without such words, which a model card must say. On 400
public comments its precision was 0.94 and its recall 0.49; let a second scorer confirm its
findings.
"""

import math
from collections.abc import Sequence
from importlib.metadata import version

from astra_core.config import Section
from astra_core.errors import ScorerError
from astra_core.errors.packages import require_package
from astra_core.scorer import Scorer


class ProfanityScorer(Scorer):
    """Probability that a text is profane or insulting, by alt-profanity-check.

    Raises ConfigurationError if the package is not installed.
    """

    def __init__(self, options: Section | None = None) -> None:
        require_package(
            "profanity_check",
            subject="scorer 'profanity'",
            extra="profanity",
            otherwise=" or name another",
        )
        super().__init__(options)

    @property
    def version(self) -> str:
        """The package and its version; the weights are part of it."""
        return f"alt-profanity-check {version('alt-profanity-check')}"

    def score(self, texts: Sequence[str]) -> list[float]:
        """One probability per text; 0 for a blank text."""
        # Imported here: scikit-learn takes a second, and naming the scorer must stay cheap.
        from profanity_check import predict_prob

        spoken = [index for index, text in enumerate(texts) if text.strip()]
        scores = [0.0] * len(texts)
        if spoken:
            for index, score in zip(
                spoken, predict_prob([texts[i] for i in spoken]).tolist(), strict=True
            ):
                scores[index] = float(score)
        if not all(math.isfinite(score) and 0.0 <= score <= 1.0 for score in scores):
            msg = f"{self.version} must give scores in [0, 1], got others; check the installation"
            raise ScorerError(msg)
        return scores
