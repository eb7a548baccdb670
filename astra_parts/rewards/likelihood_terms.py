"""Terms of likelihood: how unlikely a probe is, and how far the policy has moved."""

import math
from collections.abc import Sequence
from copy import copy
from typing import ClassVar, Literal

from pydantic import Field

from astra_core.config import NonNegative, Section
from astra_core.errors import ConfigurationError
from astra_core.reward import Signal
from astra_core.rollout import Prompt
from astra_core.seeding import derive_key
from astra_core.system import System
from astra_parts.rewards.term import Term, Turn

Ids = tuple[int, ...]


class Implausibility(Term):
    """Nats per token by which a probe is less likely than a floor; 0 for a likelier one.

    Only what is below the floor counts: a reward for ever likelier probes teaches dull text.
    """

    weight: ClassVar[float] = -0.3

    class Options(Section):
        """Under which model, and where the floor is."""

        under: Literal["target", "reference"] = "target"
        floor: Literal["absolute", "relative"] = Field(
            "absolute",
            description="Relative: measured from what the reference itself says after the same "
            "prompt, in nats per token; needs under: reference.",
        )
        nats: NonNegative = Field(
            0.8,
            description="The floor in nats per token, or how far it is above the reference's own.",
        )
        num_samples: int = Field(
            8,
            ge=1,
            le=1000,
            description="Of the reference after each prompt, for a relative floor.",
        )

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.floor == "relative" and options.under == "target":
            msg = (
                "term 'likelihood' must be measured under the reference for a relative floor, got "
                "under: target; write {under: reference, floor: relative}"
            )
            raise ConfigurationError(msg)
        self._system: System | None = None
        # The last turns and their values: an experience is rewarded and then remembered.
        self._asked: tuple[Ids, ...] = ()
        self._answer: dict[Ids, float] = {}

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Signal]:
        """The log-probabilities that it reads."""
        is_target = getattr(options, "under", "target") == "target"
        return frozenset({"target_logprobs"}) if is_target else frozenset({"reference"})

    def prepare(self, system: System, prompts: Sequence[Prompt]) -> None:
        """Keeps the reference, for a relative floor."""
        del prompts
        self._system, self._asked = system, ()

    def values(self, turns: Sequence[Turn]) -> list[float]:
        """Nats per token beyond the floor."""
        floors = self._floors(turns)
        return [
            max(0.0, self._nll(turn) - floor) for turn, floor in zip(turns, floors, strict=True)
        ]

    def _nll(self, turn: Turn) -> float:
        node = turn.node
        if self.options.under == "target":
            return node.target_nll
        return -math.fsum(node.reference_logprobs) / max(len(node.reference_logprobs), 1)

    def _floors(self, turns: Sequence[Turn]) -> list[float]:
        if self.options.floor == "absolute":
            return [self.options.nats] * len(turns)
        asked = tuple(dict.fromkeys(turn.opening_ids for turn in turns))
        if asked != self._asked:
            self._asked, self._answer = asked, self._of_the_reference(asked)
        return [self._answer[turn.opening_ids] + self.options.nats for turn in turns]

    def _of_the_reference(self, openings: Sequence[Ids]) -> dict[Ids, float]:
        """Mean negative log-probability of its own utterances after each opening, per token."""
        if self._system is None:
            msg = (
                "term 'likelihood' must know the system for a relative floor, got none; give the "
                "reward to a sampler, or call its prepare() first"
            )
            raise ConfigurationError(msg)
        # The random numbers depend only on the opening, so the floor is a property of it.
        keys = [
            [derive_key(0, "own likelihood", ids, n) for n in range(self.options.num_samples)]
            for ids in openings
        ]
        config = self._system.config
        sampled = self._system.player(0).reference.continuations(
            openings, keys, config.probe, tokens_per_batch=config.tokens_per_batch
        )
        said = [[lp for own in each.utterances for lp in own.logprobs] for each in sampled]
        return {
            ids: -math.fsum(logprobs) / max(len(logprobs), 1)
            for ids, logprobs in zip(openings, said, strict=True)
        }

    def __deepcopy__(self, memo: dict[int, object]) -> "Implausibility":
        """A copy for an evaluation with the same models, which are never copied."""
        return copy(self)


class KLToReference(Term):
    """One-sample estimate of the KL to the reference, nats per probe; may be negative."""

    needs: ClassVar[frozenset[Signal]] = frozenset({"reference"})
    weight: ClassVar[float] = -0.01

    def values(self, turns: Sequence[Turn]) -> list[float]:
        """The log-ratio of each probe (the estimator k1)."""
        return [turn.node.kl_nats for turn in turns]
