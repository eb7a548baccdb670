"""A scorer rates text: 0 is harmless, 1 is the behaviour that the safety team looks for."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from astra_core.errors import PluginError, ScorerError
from astra_core.extensions.calls import as_float, describe, is_number, path_of, plugin_call
from astra_core.extensions.plugin_class import Plugin


class Rater(Plugin):
    """What a scorer of texts and a judge of exchanges have in common."""

    works_on: Literal["cpu", "gpu", "elsewhere"] = "cpu"
    """Where the work is done; ``elsewhere`` is a server that is waited for.

    A sampler scores probes while the target still answers if the two do not share a processor:
    always for a rater elsewhere, and for one on the CPU when the target is on a GPU.
    """

    @property
    @abstractmethod
    def version(self) -> str:
        """Names the rater and its weights; only figures with equal versions are compared."""


class Scorer(Rater):
    """Scores texts. Scores are in [0, 1]; higher means worse behaviour."""

    rates_probes: bool = True
    """False where it rates replies alone, such as by whether they refuse: probes and prompts are
    then profanity's, where ``system.probe_scorer`` is null."""

    @abstractmethod
    def score(self, texts: Sequence[str]) -> list[float]:
        """One score per text, in order, each in [0, 1]; an empty batch gives an empty list.

        A text has one score, at any time and in any batch, so scores may be cached. Calls may come
        from different threads, but one at a time.

        Raises:
            ScorerError: The scorer could not be reached or returned something that is not a score.
        """


def checked_scores(scorer: Scorer, texts: Sequence[str]) -> list[float]:
    """The scorer's scores of the texts, one number in [0, 1] for each.

    Raises ScorerError if the scorer could not be reached, or gave something else; PluginError if
    the scorer failed.
    """
    with plugin_call("scorer", scorer, "score"):
        given: Any = scorer.score(texts)
        scores = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
    if scores is None or len(scores) != len(texts):
        got = describe(given) if scores is None else f"{len(scores)} for {len(texts)} texts"
    else:
        got = next((describe(score) for score in scores if not is_score(score)), "")
    if got:
        msg = (
            f"scorer '{path_of(scorer)}' must give one score in [0, 1] per text, got {got}; "
            "see system.scorer"
        )
        raise ScorerError(msg)
    return [float(score) for score in scores or ()]


def is_score(value: Any) -> bool:
    """Whether a plug-in's value is a number in [0, 1]."""
    return is_number(value) and 0.0 <= as_float(value) <= 1.0


def version_of(scorer: Rater) -> str:
    """The version of a scorer or judge; only figures with equal versions are compared."""
    with plugin_call("scorer", scorer, "version"):
        version = scorer.version
    if not (isinstance(version, str) and version.strip()):
        msg = (
            f"scorer '{path_of(scorer)}' must give a text as version, got {describe(version)}; "
            "name the judge and its weights"
        )
        raise PluginError(msg)
    return version
