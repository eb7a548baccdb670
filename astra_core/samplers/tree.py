"""Trees grown level by level: all prompts and siblings of a level in one call per model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from astra_core.config import Count, Section
from astra_core.rollout import Graph, Node, Prompt
from astra_core.sampler import Sampler
from astra_core.samplers.level import Growth, Level, grow_level, opening
from astra_core.settings.sizes import MOST_TURNS, refuse_many_texts


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
        refills: int = Field(
            0,
            ge=0,
            description="How often a probe that is empty, cut by the token limit or equal to a "
            "sibling is sampled again, before the target is asked; 0 keeps the first.",
        )

    options: Options

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
            num_responses=options.num_responses,
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
