"""What a System needs of its target; ``LanguageModel`` gives it, and a target of your own may.

The target reads and speaks token ids of a tokenizer of its own. One that shares the attacker's
(equal ``vocabulary_digest``) gets the attacker's ids as they were sampled, any other gets text that
it encodes itself. ``astra_core.testing.check_target`` checks all that is promised here.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from astra_core.config import GenerationConfiguration
from astra_core.models.language_model import Continuations


class Target(Protocol):
    """The system under attack, as sampler, reward and evaluation use it.

    A call that fails raises ``astra_core.errors.TargetError``: the turns of the level are then
    recorded as failed and counted. Any other error ends the run as a bug.
    """

    @property
    def max_positions(self) -> int:
        """The longest sequence, context and reply together, in tokens."""
        ...

    @property
    def opening_ids(self) -> tuple[int, ...]:
        """What a conversation starts with; may be empty."""
        ...

    @property
    def device(self) -> torch.device:
        """Where it computes: a scorer elsewhere works meanwhile. Of a service it is ``meta``."""
        ...

    def vocabulary_digest(self) -> str:
        """Equal for tokenizers whose ids mean the same."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of the text alone."""
        ...

    def closed(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """The ids of an utterance followed by what separates turns, which is not doubled."""
        ...

    def continuations(
        self,
        contexts: Sequence[Sequence[int]],
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        suffix_lengths: Sequence[int] | None = None,
        tokens_per_batch: int = 16384,
    ) -> list[Continuations]:
        """One answer per context, in order: ``len(keys[i])`` replies after context ``i``.

        The same context and key give the same reply, whatever else is asked for.

        Args:
            contexts: Token ids, none empty, the probe last; there may be no context at all.
            keys: The random key of each reply.
            generation: How to sample.
            suffix_lengths: Of how many last tokens of each context to return log-probabilities,
                nats: those of the probe, for rewards that ask how likely it was. A target that
                cannot tell returns none of them.
            tokens_per_batch: Bounds the memory of one pass.

        Raises:
            TargetError: It gave no answer.
        """
        ...

    def read(self, contexts: Sequence[Sequence[int]], *, tokens_per_batch: int = 16384) -> None:
        """Prepares for contexts that begin like these, if that is of use; says nothing."""
        ...

    def remembering(self, max_bytes: int, *, is_bf16: bool = False) -> AbstractContextManager[None]:
        """A scope of one rollout, in which it may cache up to ``max_bytes`` of what it has read."""
        ...
