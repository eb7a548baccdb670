"""Trees grown level by level: all prompts and siblings of a level in one call per model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from astra_core.config import Count, Section
from astra_core.metrics.reply_signal import replies_for, reply_signal
from astra_core.rollout import Graph, Node, Prompt
from astra_core.sampler import Sampler
from astra_core.samplers.level import Growth, Level, grow_level, opening
from astra_core.settings.sizes import MOST_TURNS, refuse_many_texts

_RELIABLE = 0.8
"""Share of siblings' differences that is due to the probes, in a measurement that can be relied on.

Source: Nunnally, Psychometric Theory (1978), chapter 7.
"""


class TreeSampler(Sampler):
    """Every node gets ``tree_width`` children until ``tree_depth`` turns are spoken."""

    gives: ClassVar[frozenset[Literal["siblings", "reference", "roles"]]] = frozenset(
        {"siblings", "reference", "roles"}
    )

    class Options(Section):
        """The shape of the tree."""

        tree_width: Count = Field(4, description="Probes tried after every context.")
        tree_depth: int = Field(2, ge=1, le=MOST_TURNS, description="Turns of a conversation.")
        num_responses: Count = Field(
            3, description="Replies drawn for each probe; their scores are averaged."
        )
        max_responses: int | None = Field(
            None,
            ge=2,
            description="Replies for each probe after the first experience: as many as make the "
            "probes account for 80% of what sets siblings apart (rollout/reply_signal), at most "
            "these; null keeps num_responses.",
        )
        refills: int = Field(
            0,
            ge=0,
            description="How often a probe that is empty, cut by the token limit or equal to a "
            "sibling is sampled again, before the target is asked; 0 keeps the first.",
        )

        @model_validator(mode="after")
        def _check_replies(self) -> Self:
            if self.max_responses is not None and not 2 <= self.num_responses <= self.max_responses:
                msg = (
                    f"num_responses must be from 2 to max_responses, {self.max_responses}, or "
                    f"max_responses null, got {self.num_responses}"
                )
                raise ValueError(msg)
            return self

    options: Options
    # Until an experience tells how much the replies vary.
    _num_responses: int | None = None

    @property
    def num_responses(self) -> int:
        """Replies for each probe of the next experience."""
        return self._num_responses or self.options.num_responses

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Chooses the replies for each probe by the first experience whose signal can be known."""
        # A derived class may have options of its own.
        at_most = getattr(self.options, "max_responses", None)
        if at_most is None:
            return {}
        if self._num_responses is None and (signal := reply_signal(graphs)) is not None:
            self._num_responses = replies_for(
                signal, self.options.num_responses, share=_RELIABLE, at_most=at_most
            )
        return {"num_responses": float(self.num_responses)}

    def state(self) -> Mapping[str, Tensor]:
        """The chosen number of replies, where there is one."""
        known = self._num_responses
        return {} if known is None else {"num_responses": torch.tensor(known)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores it."""
        known = state.get("num_responses")
        self._num_responses = None if known is None else int(known)

    @property
    def has_siblings(self) -> bool:
        """True when the tree branches."""
        return self.options.tree_width > 1

    def roll_out(self, prompts: Sequence[Prompt], *, iteration: int) -> list[Graph]:
        """One tree per prompt; see ``Sampler.roll_out``."""
        options = self.options
        # Only where it is asked for: a derived class may have a ``grow`` that does not know it.
        more = {"refills": options.refills} if getattr(options, "refills", 0) else {}
        return self.grow(
            prompts,
            (options.tree_width,) * options.tree_depth,
            purpose="training",
            iteration=iteration,
            num_responses=self.num_responses,
            **more,
        )

    def grow(
        self,
        prompts: Sequence[Prompt],
        widths: Sequence[int],
        *,
        purpose: str,
        iteration: int,
        num_responses: int,
        refills: int = 0,
    ) -> list[Graph]:
        """Trees with ``widths[d]`` probes after each context of depth ``d``; see ``sample_probes``.

        Raises ConfigurationError if they have more texts than can be held.
        """
        refuse_many_texts(
            purpose, len(prompts), widths, num_responses=num_responses, refills=refills
        )
        growth = Growth(self.system, self.seed, purpose, iteration, num_responses)
        places = [opening(prompt) for prompt in prompts]
        levels: list[Level] = []
        with self.system.remembering():
            for width in widths:
                levels.append(grow_level(growth, places, width, refills=refills))
                places = [turn.after for turn in levels[-1].turns if turn.after is not None]
        self.score_s += sum(level.waited_s for level in levels)
        graphs = [
            Graph(prompt, iteration, children)
            for prompt, children in zip(prompts, assemble(levels, widths), strict=True)
        ]
        self.refuse_many_failures(graphs)
        return graphs


def assemble(levels: Sequence[Level], widths: Sequence[int]) -> list[tuple[Node, ...]]:
    """The first turns of each tree, with everything that grew from them.

    ``levels``: the levels, first turns first; nothing grows below a failed turn.
    """
    groups: Iterator[tuple[Node, ...]] = iter(())
    for level, width in zip(reversed(levels), reversed(widths), strict=True):
        nodes = [
            turn.node if turn.after is None else replace(turn.node, children=next(groups, ()))
            for turn in level.turns
        ]
        groups = iter([tuple(nodes[at : at + width]) for at in range(0, len(nodes), width)])
    return list(groups)
