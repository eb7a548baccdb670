"""Utterances of a language model, and the interface of what may speak in its place."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from astra_core.config import GenerationConfiguration


@dataclass(frozen=True, slots=True)
class Utterance:
    """An utterance of attacker or target, as it was sampled.

    ``logprobs``: of each token under the unmodified model (before temperature and truncation),
    nats.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    has_ended: bool


@dataclass(frozen=True, slots=True)
class Continuations:
    """The utterances after one context.

    ``suffix_logprobs``: of the context's last tokens, as many as were asked for, nats.
    """

    utterances: tuple[Utterance, ...]
    suffix_logprobs: tuple[float, ...]


class Elsewhere(Protocol):
    """Samples and scores in a model's place.

    Attributes:
        is_mirror: True where it samples from the weights that the model has now, by other
            arithmetic; False where its weights are its own.
    """

    is_mirror: bool

    def continuations(
        self,
        model: Any,
        contexts: Sequence[Sequence[int]],
        keys: Sequence[Sequence[bytes]],
        *,
        generation: GenerationConfiguration,
    ) -> list[Continuations]:
        """See ``LanguageModel.continuations``."""

    def score(
        self, contexts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        """See ``LanguageModel.continuation_logprobs``."""

    def leave(self, folder: Path) -> None:
        """Writes what is needed to sample again into the folder in which the model was saved."""
